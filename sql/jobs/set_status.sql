-- Change a job's status and with it its clock; lock_job goes before.
-- in: job_id uuid, status text, next_run_at timestamptz or NULL (of a paused job: paused_until),
-- in: paused_until timestamptz or NULL, pause_reason text or NULL
-- out: nothing
UPDATE jobs
   SET status = %(status)s::text, next_run_at = %(next_run_at)s::timestamptz,
       paused_until = %(paused_until)s::timestamptz, pause_reason = %(pause_reason)s::text,
       version = version + 1, updated_at = clock_timestamp()
 WHERE id = %(job_id)s::uuid
