-- Make a run that is due now, of a job that nothing has to be asked about first.
-- in: job_id uuid, payload jsonb or NULL (the job's), executor text or NULL (the one that the payload is for)
-- out: job_name, id, max_attempts, scheduled_for, run_after, payload, missing_function; no row when there is no such
-- out: job, when it is cancelled, has another executor, an overlap that is not allow, or a pause that has ended
-- locks: the job FOR SHARE: a change of it waits, or is seen
WITH job AS MATERIALIZED (
    SELECT id, name, version, executor, payload, priority, max_attempts FROM jobs
     WHERE id = %(job_id)s::uuid AND status <> 'cancelled' AND overlap = 'allow'
       AND executor = coalesce(%(executor)s::text, executor)
       AND (paused_until IS NULL OR paused_until > clock_timestamp())
       FOR SHARE),
run AS (
    INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts, payload,
                       function)
    SELECT id, version, priority, clock_timestamp(), clock_timestamp(), 'manual', max_attempts, %(payload)s::jsonb,
           function_of(executor, coalesce(%(payload)s::jsonb, payload))
      FROM job
    RETURNING id, max_attempts, scheduled_for, run_after, payload, function)
SELECT job.name AS job_name, run.id, run.max_attempts, run.scheduled_for, run.run_after, run.payload,
       missing_function(run.function) AS missing_function
  FROM job CROSS JOIN run
