-- End attempts of one worker that did not succeed: retry, dead or cancelled.
-- in: boot_id uuid, child int, reports jsonb (as finish_runs, and begun bool, charged bool, error text, error_type text;
-- in: of an attempt that asks to be made again later is_later, and maybe retry_after seconds),
-- in: retry_base float8, retry_cap float8 (seconds; for jobs that have none of their own)
-- out: id, status it got (pending: to be retried), retry_in_seconds or NULL, begun, frees_held (as finish_runs); a missing run
-- out: is somebody else's
-- locks: the jobs FOR SHARE first (so that pause and cancel, which update the job, see the retry or prevent it), then
-- locks: the rows, both in the order of their ids       index: queue_pkey, jobs_pkey
-- why: a job that has a base but no cap must not find its base capped by the node's
-- why: an attempt that is not charged (interrupted by us) leaves failures alone and is due at once; one that was not
-- why: begun keeps its place in the queue and leaves no attempts row
-- why: an attempt that ends itself as cancelled gives its run up: nobody but itself has asked for it
-- why: a postponement is not charged, whatever the report says, but the 21st of a run and those after it are: a command
-- why: that asks for ever must come to an end
WITH report AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(reports)s::jsonb)
        AS r(id uuid, attempt int, exit_code int, signal int, http_status int, output_head text, output_tail text,
             output_bytes bigint, begun bool, charged bool, is_later bool, retry_after float8, error text,
             error_type text)),
job AS MATERIALIZED (
    SELECT id, status, retry_mode, coalesce(retry_base_seconds, %(retry_base)s::float8) AS retry_base,
           coalesce(retry_cap_seconds, greatest(%(retry_cap)s::float8, retry_base_seconds)) AS retry_cap
      FROM jobs
     WHERE id = ANY (ARRAY(SELECT job_id FROM queue WHERE id = ANY (ARRAY(SELECT id FROM report))))
     ORDER BY id
       FOR SHARE),
mine AS MATERIALIZED (
    SELECT q.id, q.attempt, q.boot_id, q.child, q.started_at, q.trigger, q.max_attempts, q.failures, q.postponements,
           q.cancel_requested_at, q.has_follower, w.worker_id, r.begun, r.exit_code, r.signal, r.http_status, r.error,
           r.error_type, r.output_head, r.output_tail, r.output_bytes, r.retry_after, r.is_later IS TRUE AS is_later,
           CASE WHEN r.is_later THEN q.postponements >= 20 ELSE r.charged END AS charged,
           j.status AS job_status, j.retry_mode, j.retry_base, j.retry_cap
      FROM queue AS q
      JOIN report AS r ON r.id = q.id
      JOIN job AS j ON j.id = q.job_id
      LEFT JOIN workers AS w ON w.boot_id = q.boot_id AND w.child = q.child
     WHERE q.id = ANY (ARRAY(SELECT id FROM report))
       AND q.attempt = r.attempt AND q.boot_id = %(boot_id)s::uuid AND q.child = %(child)s::int
     ORDER BY q.id
       FOR NO KEY UPDATE OF q),
owned AS MATERIALIZED (
    SELECT m.*, m.failures + m.charged::int AS failures_now,
           CASE WHEN m.cancel_requested_at IS NOT NULL OR m.error_type = 'cancelled' THEN 'cancelled'
                WHEN m.failures + m.charged::int >= m.max_attempts THEN 'dead'
                WHEN m.job_status <> 'active' AND m.trigger NOT IN ('manual', 'retry') THEN 'cancelled'
                WHEN m.job_status = 'cancelled' THEN 'cancelled'
                ELSE 'pending' END AS status,
           CASE WHEN m.is_later AND m.retry_after IS NOT NULL
                THEN make_interval(secs => least(greatest(m.retry_after, 0), m.retry_cap))
                WHEN m.charged
                THEN retry_delay(m.failures + 1, m.retry_mode, m.retry_base, m.retry_cap, random())
                WHEN m.is_later
                THEN retry_delay(m.postponements + 1, m.retry_mode, m.retry_base, m.retry_cap, random())
                ELSE interval '0' END AS delay
      FROM mine AS m),
remembered AS (
    INSERT INTO attempts (run_id, attempt, boot_id, child, worker_id, started_at, charged, exit_code, signal,
                          http_status, error, error_type, output_head, output_tail, output_bytes)
    SELECT id, attempt, boot_id, child, worker_id, started_at, charged, exit_code, signal,
           http_status, error, error_type, output_head, output_tail, output_bytes
      FROM owned WHERE status = 'pending' AND begun),
retried AS (
    UPDATE queue AS q
       SET boot_id = NULL, child = NULL, started_at = NULL, failures = o.failures_now,
           interruptions = q.interruptions + (o.begun AND NOT o.charged AND NOT o.is_later)::int,
           postponements = q.postponements + (o.is_later AND NOT o.charged)::int, progress = NULL, progress_note = NULL,
           run_after = CASE WHEN o.begun THEN clock_timestamp() + o.delay ELSE q.run_after END
      FROM owned AS o
     WHERE q.id = o.id AND o.status = 'pending'
    RETURNING q.id, o.delay),
removed AS (
    DELETE FROM queue WHERE id = ANY (ARRAY(SELECT id FROM owned WHERE status <> 'pending')) RETURNING *),
kept AS (
    INSERT INTO finished_runs
           (id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
            attempt, failures, interruptions, boot_id, child, worker_id, started_at, cancel_requested_at, payload,
            status, exit_code, signal, http_status, error, error_type, output_head, output_tail, output_bytes)
    SELECT d.id, d.job_id, d.job_version, d.priority, d.scheduled_for, d.tick_at, d.trigger, d.is_catch_up,
           d.retry_of, d.max_attempts, d.attempt, o.failures_now, d.interruptions, d.boot_id, d.child, o.worker_id,
           d.started_at, d.cancel_requested_at, d.payload, o.status, o.exit_code, o.signal, o.http_status,
           CASE WHEN o.status = 'cancelled' THEN coalesce('stopped: ' || d.cancel_reason, o.error) ELSE o.error END,
           o.error_type, o.output_head, o.output_tail, o.output_bytes
      FROM removed AS d JOIN owned AS o ON o.id = d.id)
SELECT o.id, o.status, extract(epoch FROM r.delay)::float8 AS retry_in_seconds, o.begun,
       o.has_follower AND o.status <> 'pending' AS frees_held
  FROM owned AS o LEFT JOIN retried AS r ON r.id = o.id
 ORDER BY o.id
