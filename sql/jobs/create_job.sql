-- Store a new job.
-- in: name text, description text, tags text[], executor text, payload jsonb, cron_expr text or NULL,
-- in: run_at timestamptz or NULL, timezone text, start_at timestamptz or NULL, end_at timestamptz or NULL,
-- in: jitter_seconds float8, priority int, max_attempts int, timeout_seconds float8, catch_up text,
-- in: catch_up_limit int, overlap text, on_lease_loss text (kill, continue), idempotency_key text or NULL,
-- in: request_digest bytea or NULL, status text (active, paused), next_run_at timestamptz or NULL, source text
-- out: the job's id; no row when the idempotency key is taken: waits until the other insert has ended
-- why: DO NOTHING, for DO UPDATE would write and lock a row version for each duplicate
INSERT INTO jobs (name, description, tags, executor, payload, cron_expr, run_at, timezone, start_at, end_at,
                  jitter_seconds, priority, max_attempts, timeout_seconds, catch_up, catch_up_limit, overlap,
                  on_lease_loss, idempotency_key, request_digest, status, next_run_at, source)
VALUES (%(name)s::text, %(description)s::text, %(tags)s::text[], %(executor)s::text, %(payload)s::jsonb,
        %(cron_expr)s::text, %(run_at)s::timestamptz, %(timezone)s::text, %(start_at)s::timestamptz,
        %(end_at)s::timestamptz, %(jitter_seconds)s::float8, %(priority)s::smallint, %(max_attempts)s::int,
        %(timeout_seconds)s::float8, %(catch_up)s::text, %(catch_up_limit)s::int, %(overlap)s::text,
        %(on_lease_loss)s::text, %(idempotency_key)s::text, %(request_digest)s::bytea, %(status)s::text,
        %(next_run_at)s::timestamptz, %(source)s::text)
    ON CONFLICT (idempotency_key) DO NOTHING
RETURNING id
