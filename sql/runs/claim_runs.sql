-- Give up to max_runs due runs to one worker, best priority first, then longest due; of a short queue its fair share.
-- in: boot_id uuid, child int, max_runs int, marks_at timestamptz[], marks_id uuid[] (a watermark for each priority
-- in: from 1 to 9: what lies at or before it is not looked at; -infinity and the nil UUID for none),
-- in: now timestamptz or NULL (tests only)
-- out: one row per claimed run, best first; no row when nothing is due or the worker's lease is gone
-- locks: the own workers row (KEY SHARE: recovery waits for this claim, beats do not), the claimed rows; waits for none
-- index: queue_due_idx, once per priority; a single scan would walk all delayed runs of the better priorities
-- why: MATERIALIZED and the array keep LIMIT what it says under any plan; NO KEY UPDATE leaves foreign keys free
-- why: the share counts what is due up to a thousand runs, and nothing for a claim of one
-- why: runs of functions that the worker's code lacks are walked over; whoever has them takes them
-- why: a suspect is taken alone: what lies behind it is left for the next claim, as it is when it lies behind others
WITH me AS MATERIALIZED (
    SELECT coalesce(c.functions, '{}') AS functions
      FROM workers AS w LEFT JOIN catalogues AS c ON c.id = w.catalogue
     WHERE w.boot_id = %(boot_id)s::uuid AND w.child = %(child)s::int AND w.lease_expires_at > clock_timestamp()
       FOR KEY SHARE OF w),
mark AS MATERIALIZED (
    SELECT m.priority::smallint AS priority, m.at, m.id
      FROM unnest(%(marks_at)s::timestamptz[], %(marks_id)s::uuid[]) WITH ORDINALITY AS m(at, id, priority)),
living AS MATERIALIZED (
    SELECT greatest(count(*), 1)::int AS workers FROM workers WHERE lease_expires_at > now()),
share AS MATERIALIZED (
    SELECT CASE WHEN %(max_runs)s::int <= 1 THEN %(max_runs)s::int
                ELSE least(%(max_runs)s::int, greatest(1, (
                       SELECT ceil(count(*)::float8 / (SELECT workers FROM living)) FROM (
                         SELECT FROM mark AS m CROSS JOIN LATERAL (
                           SELECT FROM queue
                            WHERE priority = m.priority AND boot_id IS NULL
                              AND run_after <= coalesce(%(now)s::timestamptz, now()) AND (run_after, id) > (m.at, m.id)
                            ORDER BY run_after, id
                            LIMIT (SELECT least(%(max_runs)s::int * workers, 1000) FROM living)) AS t
                          LIMIT (SELECT least(%(max_runs)s::int * workers, 1000) FROM living)) AS d)))
            END::int AS runs),
due AS MATERIALIZED (
    SELECT t.id, t.is_suspect
      FROM mark AS m
     CROSS JOIN LATERAL (
           SELECT id, is_suspect FROM queue
            WHERE EXISTS (SELECT FROM me)
              AND priority = m.priority AND boot_id IS NULL AND run_after <= coalesce(%(now)s::timestamptz, now())
              AND (run_after, id) > (m.at, m.id)
              AND (function IS NULL OR function = ANY ((SELECT functions FROM me)::text[]))
            ORDER BY run_after, id
            LIMIT (SELECT runs FROM share)
              FOR NO KEY UPDATE SKIP LOCKED) AS t
     LIMIT (SELECT runs FROM share)),
placed AS MATERIALIZED (
    SELECT id, is_suspect, row_number() OVER () AS place FROM due),
claimed AS (
    UPDATE queue AS q
       SET boot_id = %(boot_id)s::uuid, child = %(child)s::int, attempt = q.attempt + 1,
           started_at = clock_timestamp(), job_version = j.version
      FROM jobs AS j
     WHERE q.id = ANY (ARRAY(
               SELECT id FROM placed
                WHERE place = 1 OR place < (SELECT coalesce(min(place), 1001) FROM placed WHERE is_suspect)))
       AND j.id = q.job_id
    RETURNING q.id, q.job_id, j.name AS job_name, j.executor, coalesce(q.payload, j.payload) AS payload,
              j.timeout_seconds, j.timezone,
              j.on_lease_loss,
              q.attempt, q.failures, q.max_attempts, q.scheduled_for, q.is_catch_up, q.priority, q.run_after)
SELECT id, job_id, job_name, executor, payload, timeout_seconds, timezone, on_lease_loss,
       attempt, failures, max_attempts, scheduled_for, is_catch_up, priority, run_after
  FROM claimed
 ORDER BY priority, run_after, id
