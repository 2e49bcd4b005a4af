-- Make one run of a job, due now or held until the others of its job have ended.
-- in: job_id uuid, trigger text (once, manual), payload jsonb or NULL (the job's), is_held bool
-- out: the run's id; no row when there is no such job or it is cancelled
-- locks: the job FOR SHARE: a cancel waits, or is seen
WITH job AS MATERIALIZED (
    SELECT id, version, executor, payload, priority, max_attempts FROM jobs
     WHERE id = %(job_id)s::uuid AND status <> 'cancelled'
       FOR SHARE)
INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts, payload, function)
SELECT id, version, priority, clock_timestamp(),
       CASE WHEN %(is_held)s::bool THEN held_until() ELSE clock_timestamp() END, %(trigger)s::text, max_attempts,
       %(payload)s::jsonb, function_of(executor, coalesce(%(payload)s::jsonb, payload))
  FROM job
RETURNING id
