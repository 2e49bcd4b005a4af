-- Have the runs of a job wait for each other no more.
-- in: job_id uuid
-- out: the ids of those that are due now
-- locks: the rows; lock_job goes before       index: queue_job_idx
UPDATE queue SET run_after = clock_timestamp()
 WHERE job_id = %(job_id)s::uuid AND is_held
RETURNING id
