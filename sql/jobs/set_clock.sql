-- Set the clock of an active job; lock_job goes before.
-- in: job_id uuid, next_run_at timestamptz or NULL
-- out: nothing
UPDATE jobs
   SET next_run_at = %(next_run_at)s::timestamptz, version = version + 1, updated_at = clock_timestamp()
 WHERE id = %(job_id)s::uuid AND status = 'active'
