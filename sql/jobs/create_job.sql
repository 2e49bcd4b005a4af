-- Store a new job and, when it is due now, its run.
-- in: name text, description text, tags text[], executor text, payload jsonb, cron_expr text or NULL,
-- in: run_at timestamptz or NULL, timezone text, start_at timestamptz or NULL, end_at timestamptz or NULL,
-- in: jitter_seconds float8, priority int, max_attempts int, timeout_seconds float8, catch_up text,
-- in: catch_up_limit int, overlap text, on_lease_loss text (kill, continue),
-- in: retry_mode text (jitter, exponential, fixed), retry_base_seconds float8 or NULL (the node's),
-- in: retry_cap_seconds float8 or NULL (the node's), idempotency_key text or NULL, request_digest bytea or NULL,
-- in: status text (active, paused), next_run_at timestamptz or NULL, source text, is_due bool
-- out: what the database has made of it: id, payload, version, created_at, updated_at, run_id or NULL; no row when the
-- out: idempotency key is taken: waits until the other insert has ended
-- why: one statement, for alone it is a transaction of its own: one round trip, and never a job without its run
-- why: DO NOTHING, for DO UPDATE would write and lock a row version for each duplicate
WITH job AS (
    INSERT INTO jobs (name, description, tags, executor, payload, cron_expr, run_at, timezone, start_at, end_at,
                      jitter_seconds, priority, max_attempts, timeout_seconds, catch_up, catch_up_limit, overlap,
                      on_lease_loss, retry_mode, retry_base_seconds, retry_cap_seconds, idempotency_key,
                      request_digest, status, next_run_at, source)
    VALUES (%(name)s::text, %(description)s::text, %(tags)s::text[], %(executor)s::text, %(payload)s::jsonb,
            %(cron_expr)s::text, %(run_at)s::timestamptz, %(timezone)s::text, %(start_at)s::timestamptz,
            %(end_at)s::timestamptz, %(jitter_seconds)s::float8, %(priority)s::smallint, %(max_attempts)s::int,
            %(timeout_seconds)s::float8, %(catch_up)s::text, %(catch_up_limit)s::int, %(overlap)s::text,
            %(on_lease_loss)s::text, %(retry_mode)s::text, %(retry_base_seconds)s::float8,
            %(retry_cap_seconds)s::float8, %(idempotency_key)s::text, %(request_digest)s::bytea, %(status)s::text,
            %(next_run_at)s::timestamptz, %(source)s::text)
        ON CONFLICT (idempotency_key) DO NOTHING
    RETURNING id, executor, payload, version, priority, max_attempts, created_at, updated_at),
run AS (
    INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts, function)
    SELECT id, version, priority, clock_timestamp(), clock_timestamp(), 'once', max_attempts,
           function_of(executor, payload)
      FROM job
     WHERE %(is_due)s::bool
    RETURNING id)
SELECT job.id, job.payload, job.version, job.created_at, job.updated_at, run.id AS run_id
  FROM job LEFT JOIN run ON true
