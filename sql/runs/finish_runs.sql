-- End succeeded runs of one worker: out of the queue, into the history.
-- in: boot_id uuid, child int, reports jsonb (a list of id, attempt, output_head, output_tail, output_bytes and,
-- in: where there is one, exit_code, signal, http_status)
-- out: id and frees_held (its end may have made a held run due) of each run that was still this worker's; a missing one
-- out: belongs to somebody else, its report is void
-- locks: the finished rows, in the order of their ids       index: queue_pkey
WITH report AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(reports)s::jsonb)
        AS r(id uuid, attempt int, exit_code int, signal int, http_status int, output_head text, output_tail text,
             output_bytes bigint)),
owned AS MATERIALIZED (
    SELECT q.id FROM queue AS q JOIN report AS r ON r.id = q.id
     WHERE q.id = ANY (ARRAY(SELECT id FROM report))
       AND q.attempt = r.attempt AND q.boot_id = %(boot_id)s::uuid AND q.child = %(child)s::int
     ORDER BY q.id
       FOR NO KEY UPDATE OF q),
removed AS (
    DELETE FROM queue WHERE id = ANY (ARRAY(SELECT id FROM owned)) RETURNING *),
kept AS (
    INSERT INTO finished_runs
           (id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
            attempt, failures, interruptions, boot_id, child, worker_id, started_at, cancel_requested_at, payload,
            status, exit_code, signal, http_status, output_head, output_tail, output_bytes)
    SELECT d.id, d.job_id, d.job_version, d.priority, d.scheduled_for, d.tick_at, d.trigger, d.is_catch_up, d.retry_of,
           d.max_attempts, d.attempt, d.failures, d.interruptions, d.boot_id, d.child, w.worker_id, d.started_at,
           d.cancel_requested_at, d.payload, 'succeeded', r.exit_code, r.signal, r.http_status, r.output_head,
           r.output_tail, r.output_bytes
      FROM removed AS d
      JOIN report AS r ON r.id = d.id
      LEFT JOIN workers AS w ON w.boot_id = d.boot_id AND w.child = d.child)
SELECT id, has_follower AS frees_held FROM removed
