-- What a node's master must know to wake workers: due runs of what its workers have, the next due time, cancel requests.
-- in: boot_id uuid, max_due int
-- out: one row: due (counted up to max_due), seconds until the next run that is not yet due or NULL, and the child,
-- out: run and attempt of each of this node's runs that shall stop
-- index: queue_due_idx once per priority; queue_cancel_idx
SELECT (SELECT count(*) FROM (
          SELECT FROM generate_series(1, 9) AS p CROSS JOIN LATERAL (
            SELECT FROM queue
             WHERE priority = p::smallint AND boot_id IS NULL AND run_after <= now()
               AND (function IS NULL OR function = ANY (ARRAY(
                      SELECT DISTINCT unnest(c.functions) FROM workers AS w JOIN catalogues AS c ON c.id = w.catalogue
                       WHERE w.boot_id = %(boot_id)s::uuid)))
             LIMIT %(max_due)s::int) AS t LIMIT %(max_due)s::int) AS d) AS due,
       (SELECT extract(epoch FROM min(t.run_after) - now())::float8
          FROM generate_series(1, 9) AS p CROSS JOIN LATERAL (
            SELECT run_after FROM queue WHERE priority = p::smallint AND run_after > now() AND run_after < held_until()
             ORDER BY run_after, id LIMIT 1) AS t) AS next_due_seconds,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('child', child, 'run', id, 'attempt', attempt)), '[]')
          FROM queue WHERE cancel_requested_at IS NOT NULL AND boot_id = %(boot_id)s::uuid) AS cancels
