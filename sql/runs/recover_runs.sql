-- Take back every run of a worker that is proved dead; delete_worker goes before it in the same transaction.
-- in: boot_id uuid, child int, worker_id text or NULL, all_begun bool (nobody knows),
-- in: begun_run uuid or NULL, begun_attempt int or NULL (the attempt that was going on),
-- in: error text, error_type text, charged bool (false: we killed the worker), retry_base float8, retry_cap float8
-- in: (both as fail_runs)
-- out: id, status it got (pending, dead or cancelled), retry_in_seconds or NULL, begun, frees_held (as finish_runs)
-- locks: as fail_runs
-- index: none: the queue is scanned by owner only here, when a worker died
-- why: a run that was claimed but not begun is handed back untouched, without an attempts row; where nobody knows which
-- why: of several was begun, none is charged, and each becomes a suspect: claimed alone, and charged the next time
WITH job AS MATERIALIZED (
    SELECT id, status, retry_mode, coalesce(retry_base_seconds, %(retry_base)s::float8) AS retry_base,
           coalesce(retry_cap_seconds, greatest(%(retry_cap)s::float8, retry_base_seconds)) AS retry_cap
      FROM jobs
     WHERE id = ANY (ARRAY(SELECT job_id FROM queue WHERE boot_id = %(boot_id)s::uuid AND child = %(child)s::int))
     ORDER BY id
       FOR SHARE),
mine AS MATERIALIZED (
    SELECT q.*, j.status AS job_status, j.retry_mode, j.retry_base, j.retry_cap,
           ((q.id, q.attempt) = (%(begun_run)s::uuid, %(begun_attempt)s::int)) IS TRUE AS was_going_on
      FROM queue AS q JOIN job AS j ON j.id = q.job_id
     WHERE q.boot_id = %(boot_id)s::uuid AND q.child = %(child)s::int
     ORDER BY q.id
       FOR NO KEY UPDATE OF q),
judged AS MATERIALIZED (
    SELECT m.*, m.was_going_on OR (%(all_begun)s::bool AND (m.is_suspect OR count(*) OVER () = 1)) AS begun,
           %(all_begun)s::bool AND NOT m.is_suspect AND count(*) OVER () > 1 AS is_suspect_now
      FROM mine AS m),
owned AS MATERIALIZED (
    SELECT m.*, m.begun AND %(charged)s::bool AS charged,
           m.failures + (m.begun AND %(charged)s::bool)::int AS failures_now,
           CASE WHEN m.cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN m.failures + (m.begun AND %(charged)s::bool)::int >= m.max_attempts THEN 'dead'
                WHEN m.job_status <> 'active' AND m.trigger NOT IN ('manual', 'retry') THEN 'cancelled'
                WHEN m.job_status = 'cancelled' THEN 'cancelled'
                ELSE 'pending' END AS status,
           CASE WHEN m.begun AND %(charged)s::bool
                THEN retry_delay(m.failures + 1, m.retry_mode, m.retry_base, m.retry_cap, random())
                ELSE interval '0' END AS delay
      FROM judged AS m),
remembered AS (
    INSERT INTO attempts (run_id, attempt, boot_id, child, worker_id, started_at, charged, error, error_type)
    SELECT id, attempt, boot_id, child, %(worker_id)s::text, started_at, charged, %(error)s::text, %(error_type)s::text
      FROM owned WHERE status = 'pending' AND begun),
retried AS (
    UPDATE queue AS q
       SET boot_id = NULL, child = NULL, started_at = NULL, failures = o.failures_now,
           interruptions = q.interruptions + (o.begun AND NOT o.charged)::int, progress = NULL, progress_note = NULL,
           run_after = CASE WHEN o.begun THEN clock_timestamp() + o.delay ELSE q.run_after END,
           is_suspect = q.is_suspect OR o.is_suspect_now
      FROM owned AS o
     WHERE q.id = o.id AND o.status = 'pending'
    RETURNING q.id, o.delay),
removed AS (
    DELETE FROM queue WHERE id = ANY (ARRAY(SELECT id FROM owned WHERE status <> 'pending')) RETURNING *),
kept AS (
    INSERT INTO finished_runs
           (id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
            attempt, failures, interruptions, boot_id, child, worker_id, started_at, cancel_requested_at, payload,
            status, error, error_type)
    SELECT d.id, d.job_id, d.job_version, d.priority, d.scheduled_for, d.tick_at, d.trigger, d.is_catch_up,
           d.retry_of, d.max_attempts, d.attempt, o.failures_now, d.interruptions, d.boot_id, d.child,
           %(worker_id)s::text, d.started_at,
           d.cancel_requested_at, d.payload, o.status,
           CASE WHEN o.status = 'cancelled' THEN coalesce('stopped: ' || d.cancel_reason, %(error)s::text)
                ELSE %(error)s::text END, %(error_type)s::text
      FROM removed AS d JOIN owned AS o ON o.id = d.id)
SELECT o.id, o.status, extract(epoch FROM r.delay)::float8 AS retry_in_seconds, o.begun,
       o.has_follower AND o.status <> 'pending' AS frees_held
  FROM owned AS o LEFT JOIN retried AS r ON r.id = o.id
 ORDER BY o.id
