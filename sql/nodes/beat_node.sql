-- Renew the leases of a node's living workers, all in one statement, and say that the node lives.
-- in: boot_id uuid, worker_id text, hostname text, machine text, pid int, roles text[], concurrency int, version text,
-- in: children int[] (the living), lease_seconds float8
-- out: one row: the children whose lease was renewed; one that is missing has lost its runs to others
-- locks: the node's row and the workers' rows, in the order of child, before the clock is read: a lease must not
-- locks: lose the time that was spent waiting for a lock; never waits for a claim
WITH node AS (
    INSERT INTO nodes (boot_id, worker_id, hostname, machine, pid, roles, concurrency, version, lease_expires_at)
    VALUES (%(boot_id)s::uuid, %(worker_id)s::text, %(hostname)s::text, %(machine)s::text, %(pid)s::int, %(roles)s::text[],
            %(concurrency)s::int, %(version)s::text,
            clock_timestamp() + make_interval(secs => %(lease_seconds)s::float8))
        ON CONFLICT (boot_id) DO UPDATE
       SET heartbeat_at = clock_timestamp(), lease_expires_at = EXCLUDED.lease_expires_at,
           concurrency = EXCLUDED.concurrency, roles = EXCLUDED.roles),
living AS MATERIALIZED (
    SELECT boot_id, child FROM workers
     WHERE boot_id = %(boot_id)s::uuid AND child = ANY (%(children)s::int[])
     ORDER BY child
       FOR NO KEY UPDATE),
renewed AS (
    UPDATE workers AS w
       SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s::float8)
      FROM living AS l
     WHERE w.boot_id = l.boot_id AND w.child = l.child
    RETURNING w.child)
SELECT coalesce(array_agg(child ORDER BY child), '{}')::int[] AS children FROM renewed
