-- Hold a job still while it is changed.
-- in: job_id uuid
-- out: executor, status, clock, schedule, and the database's clock; no row when there is none
-- locks: the job, NO KEY UPDATE: ticks, retries, triggers and other changes of it wait
SELECT executor, status, next_run_at, cron_expr, run_at, timezone, start_at, end_at, catch_up_limit, overlap,
       paused_until, pause_reason, version, clock_timestamp() AS now
  FROM jobs
 WHERE id = %(job_id)s::uuid
   FOR NO KEY UPDATE
