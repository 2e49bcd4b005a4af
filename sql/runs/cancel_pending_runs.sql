-- Cancel every run of a job that no worker owns, held ones too.
-- in: job_id uuid, reason text (what the run shows as its error), but uuid or NULL (a run that stays)
-- out: the ids
-- locks: the runs; waits for a claim of one of them, and leaves that one to its worker
-- why: the job was updated first, in the same transaction, so that no retry can add another one meanwhile
WITH removed AS (
    DELETE FROM queue
     WHERE job_id = %(job_id)s::uuid AND boot_id IS NULL AND id IS DISTINCT FROM %(but)s::uuid
    RETURNING *)
INSERT INTO finished_runs
       (id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
        attempt, failures, interruptions, payload, status, error, error_type)
SELECT id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
       attempt, failures, interruptions, payload, 'cancelled', %(reason)s::text, 'cancelled'
  FROM removed
RETURNING id
