-- Hold still what is unfinished of one job; lock_job goes before.
-- in: job_id uuid
-- out: one row: total, running, held, first_id or NULL, due_at or NULL (all as lock_unfinished)
-- locks: the rows, NO KEY UPDATE, in the order of their ids as a finish does; waits for it       index: queue_job_idx
WITH locked AS MATERIALIZED (
    SELECT id, boot_id IS NOT NULL AS is_running, is_held, run_after FROM queue
     WHERE job_id = %(job_id)s::uuid
     ORDER BY id
       FOR NO KEY UPDATE)
SELECT count(*) AS total, count(*) FILTER (WHERE is_running) AS running, count(*) FILTER (WHERE is_held) AS held,
       (array_agg(id ORDER BY is_held, NOT is_running, id))[1] AS first_id,
       min(run_after) FILTER (WHERE NOT is_running AND NOT is_held) AS due_at
  FROM locked
