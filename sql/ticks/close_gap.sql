-- End the open stretch of a job, if it has one.
-- in: job_id uuid, to_at timestamptz (belongs to it), note text or NULL (why it was)
-- out: nothing
UPDATE tick_gaps SET to_at = greatest(from_at, %(to_at)s::timestamptz), note = %(note)s::text
 WHERE job_id = %(job_id)s::uuid AND to_at IS NULL
