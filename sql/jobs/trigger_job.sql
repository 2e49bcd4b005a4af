-- Make a run that is due now, of a job that nothing has to be asked about first.
-- in: job_id uuid, payload jsonb or NULL (the job's), executor text or NULL (the one that the payload is for)
-- out: job_name, id, max_attempts, scheduled_for, run_after, payload; no row when there is no such job, when it is
-- out: cancelled, has another executor, an overlap that is not allow, or a pause that has ended
-- locks: the job FOR SHARE: a change of it waits, or is seen
WITH job AS MATERIALIZED (
    SELECT id, name, version, priority, max_attempts FROM jobs
     WHERE id = %(job_id)s::uuid AND status <> 'cancelled' AND overlap = 'allow'
       AND executor = coalesce(%(executor)s::text, executor)
       AND (paused_until IS NULL OR paused_until > clock_timestamp())
       FOR SHARE),
run AS (
    INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts, payload)
    SELECT id, version, priority, clock_timestamp(), clock_timestamp(), 'manual', max_attempts, %(payload)s::jsonb
      FROM job
    RETURNING id, max_attempts, scheduled_for, run_after, payload)
SELECT job.name AS job_name, run.id, run.max_attempts, run.scheduled_for, run.run_after, run.payload
  FROM job CROSS JOIN run
