-- Say that a worker process lives, and give it its first lease.
-- in: boot_id uuid, child int, worker_id text, lease_seconds float8
-- out: nothing
INSERT INTO workers (boot_id, child, worker_id, lease_expires_at)
VALUES (%(boot_id)s::uuid, %(child)s::int, %(worker_id)s::text,
        clock_timestamp() + make_interval(secs => %(lease_seconds)s::float8))
