-- Give up to max_runs due runs to one worker, best priority first, then longest due.
-- in: boot_id uuid, child int, max_runs int, now timestamptz or NULL (tests only)
-- out: one row per claimed run, best first; no row when nothing is due or the worker's lease is gone
-- locks: the own workers row (KEY SHARE: recovery waits for this claim, beats do not), the claimed rows; waits for none
-- index: queue_due_idx, once per priority; a single scan would walk all delayed runs of the better priorities
-- why: MATERIALIZED and the array keep LIMIT what it says under any plan; NO KEY UPDATE leaves foreign keys free
WITH me AS MATERIALIZED (
    SELECT 1 FROM workers
     WHERE boot_id = %(boot_id)s::uuid AND child = %(child)s::int AND lease_expires_at > clock_timestamp()
       FOR KEY SHARE),
due AS MATERIALIZED (
    SELECT t.id
      FROM generate_series(1, 9) AS p
     CROSS JOIN LATERAL (
           SELECT id FROM queue
            WHERE EXISTS (SELECT FROM me)
              AND priority = p::smallint AND boot_id IS NULL AND run_after <= coalesce(%(now)s::timestamptz, now())
            ORDER BY run_after, id
            LIMIT %(max_runs)s::int
              FOR NO KEY UPDATE SKIP LOCKED) AS t
     LIMIT %(max_runs)s::int),
claimed AS (
    UPDATE queue AS q
       SET boot_id = %(boot_id)s::uuid, child = %(child)s::int, attempt = q.attempt + 1,
           started_at = clock_timestamp(), job_version = j.version
      FROM jobs AS j
     WHERE q.id = ANY (ARRAY(SELECT id FROM due)) AND j.id = q.job_id
    RETURNING q.id, q.job_id, j.name AS job_name, j.executor, coalesce(q.payload, j.payload) AS payload,
              j.timeout_seconds, j.timezone,
              j.on_lease_loss,
              q.attempt, q.failures, q.max_attempts, q.scheduled_for, q.is_catch_up, q.priority, q.run_after)
SELECT id, job_id, job_name, executor, payload, timeout_seconds, timezone, on_lease_loss,
       attempt, failures, max_attempts, scheduled_for, is_catch_up
  FROM claimed
 ORDER BY priority, run_after, id
