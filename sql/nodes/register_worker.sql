-- Say that a worker process lives, and what functions it has, and give it its first lease.
-- in: boot_id uuid, child int, worker_id text, lease_seconds float8, catalogue text, functions text[]
-- out: nothing
-- why: DO NOTHING: workers of the same code have the same catalogue; the reference is checked when both are there
WITH known AS (
    INSERT INTO catalogues (id, functions) VALUES (%(catalogue)s::text, %(functions)s::text[])
        ON CONFLICT (id) DO NOTHING)
INSERT INTO workers (boot_id, child, worker_id, catalogue, lease_expires_at)
VALUES (%(boot_id)s::uuid, %(child)s::int, %(worker_id)s::text, %(catalogue)s::text,
        clock_timestamp() + make_interval(secs => %(lease_seconds)s::float8))
