-- Cancel every run of a job that no worker owns.
-- in: job_id uuid
-- out: the ids
-- locks: the runs; waits for a claim of one of them, and leaves that one to its worker
-- why: the job was updated first, in the same transaction, so that no retry can add another one meanwhile
WITH removed AS (
    DELETE FROM queue WHERE job_id = %(job_id)s::uuid AND boot_id IS NULL RETURNING *)
INSERT INTO finished_runs
       (id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
        attempt, failures, interruptions, status)
SELECT id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
       attempt, failures, interruptions, 'cancelled'
  FROM removed
RETURNING id
