-- Hold still what is unfinished of some jobs, to decide what becomes of their next runs; waits for none.
-- in: job_ids uuid[]
-- out: a row for each job that has unfinished runs: job_id, total, locked (less than total: somebody is at work on one at
-- out: this moment, and nothing is to be decided), running, held, first_id (running ones first, held ones last) and
-- out: due_at (of what waits for a worker, the soonest), the last four of what is locked
-- locks: the rows, NO KEY UPDATE       index: queue_job_idx
-- why: SKIP LOCKED: a worker that reports both a success and a failure holds the one while it waits for the job of the
-- why: other, which the caller holds
-- why: counted, not joined: a join of the two sets was planned for one row, and took 6 s for 5,000
WITH locked AS MATERIALIZED (
    SELECT id, job_id, boot_id IS NOT NULL AS is_running, is_held, run_after FROM queue
     WHERE job_id = ANY (%(job_ids)s::uuid[])
       FOR NO KEY UPDATE SKIP LOCKED),
every AS (
    SELECT job_id, true AS is_seen, id, false AS is_running, false AS is_held, run_after FROM queue
     WHERE job_id = ANY (%(job_ids)s::uuid[])
    UNION ALL
    SELECT job_id, false, id, is_running, is_held, run_after FROM locked)
SELECT job_id, count(*) FILTER (WHERE is_seen) AS total, count(*) FILTER (WHERE NOT is_seen) AS locked,
       count(*) FILTER (WHERE is_running) AS running, count(*) FILTER (WHERE is_held) AS held,
       (array_agg(id ORDER BY is_seen, is_held, NOT is_running, id))[1] AS first_id,
       min(run_after) FILTER (WHERE NOT is_seen AND NOT is_running AND NOT is_held) AS due_at
  FROM every
 GROUP BY job_id
