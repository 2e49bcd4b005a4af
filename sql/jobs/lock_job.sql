-- Hold a job still while its status is changed.
-- in: job_id uuid
-- out: status, schedule, and the database's clock; no row when there is none
-- locks: the job, NO KEY UPDATE: ticks, retries, triggers and other changes of it wait
SELECT status, cron_expr, run_at, timezone, clock_timestamp() AS now
  FROM jobs
 WHERE id = %(job_id)s::uuid
   FOR NO KEY UPDATE
