-- Change a job's status and with it its clock; lock_job goes before.
-- in: job_id uuid, status text, next_run_at timestamptz or NULL
-- out: nothing
UPDATE jobs
   SET status = %(status)s::text, next_run_at = %(next_run_at)s::timestamptz, version = version + 1,
       updated_at = clock_timestamp()
 WHERE id = %(job_id)s::uuid
