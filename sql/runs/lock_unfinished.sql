-- Hold still what is unfinished of some jobs, to decide what becomes of their next runs.
-- in: job_ids uuid[]
-- out: one row per run: id, job_id, is_running, is_held, is_locked; a run that is not locked is in somebody's hands at
-- out: this moment, and what was read of it is not to be decided on
-- locks: the rows; waits for none       index: queue_job_idx
-- why: SKIP LOCKED: a worker that reports both a success and a failure holds the one while it waits for the job of the
-- why: other, which the caller holds
WITH seen AS MATERIALIZED (
    SELECT id, job_id FROM queue WHERE job_id = ANY (%(job_ids)s::uuid[])),
locked AS MATERIALIZED (
    SELECT id, boot_id IS NOT NULL AS is_running, is_held FROM queue
     WHERE job_id = ANY (%(job_ids)s::uuid[])
       FOR NO KEY UPDATE SKIP LOCKED)
SELECT s.id, s.job_id, coalesce(l.is_running, false) AS is_running, coalesce(l.is_held, false) AS is_held,
       l.id IS NOT NULL AS is_locked
  FROM seen AS s LEFT JOIN locked AS l ON l.id = s.id
 ORDER BY s.id
