-- Make runs that do again what finished ones were to do, due now or held until the others of their job have ended.
-- in: run_ids uuid[], is_held bool
-- out: id, retry_of
-- locks: none but those of the inserts; lock_finished and a lock on the jobs go before
-- why: what it was scheduled for is kept, for a job may go by that; the tick is not, for it has had its run
-- why: priority and number of tries are the job's of today, and so is the payload but where the run had one of its own
INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, retry_of, max_attempts, payload,
                   function)
SELECT f.job_id, j.version, j.priority, f.scheduled_for,
       CASE WHEN %(is_held)s::bool THEN held_until() ELSE clock_timestamp() END, 'retry', f.id, j.max_attempts,
       f.payload, function_of(j.executor, coalesce(f.payload, j.payload))
  FROM finished_runs AS f JOIN jobs AS j ON j.id = f.job_id
 WHERE f.id = ANY (%(run_ids)s::uuid[])
 ORDER BY f.id
RETURNING id, retry_of
