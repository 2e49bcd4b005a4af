-- Keep a job from being changed while runs of it are made.
-- in: job_id uuid
-- out: executor, function, status, overlap, version, priority, max_attempts, and the database's clock; no row when
-- out: there is none
-- locks: the job FOR SHARE: a change of it waits, other makers of runs do not
SELECT executor, function_of(executor, payload) AS function, status, overlap, version, priority, max_attempts,
       clock_timestamp() AS now
  FROM jobs
 WHERE id = %(job_id)s::uuid
   FOR SHARE
