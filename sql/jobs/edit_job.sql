-- Change what a job is, and remember what it was; lock_job goes before.
-- in: job_id uuid, name text, description text, tags text[], executor text, payload jsonb, cron_expr text or NULL,
-- in: run_at timestamptz or NULL, timezone text, start_at timestamptz or NULL, end_at timestamptz or NULL,
-- in: jitter_seconds float8, priority int, max_attempts int, timeout_seconds float8, catch_up text,
-- in: catch_up_limit int, overlap text, on_lease_loss text, retry_mode text, retry_base_seconds float8 or NULL,
-- in: retry_cap_seconds float8 or NULL, next_run_at timestamptz or NULL,
-- in: now timestamptz (for which the new clock was computed: not a moment later the new times are in force)
-- out: nothing
-- locks: unfinished runs that call another function from now on
WITH was AS (
    INSERT INTO job_versions (job_id, version, until_at, definition)
    SELECT id, version, %(now)s::timestamptz,
           to_jsonb(j) - ARRAY['id', 'status', 'next_run_at', 'paused_until', 'pause_reason', 'version', 'source',
                               'idempotency_key', 'request_digest', 'created_at', 'updated_at']
      FROM jobs AS j WHERE id = %(job_id)s::uuid),
other AS (
    UPDATE queue
       SET function = function_of(%(executor)s::text, coalesce(payload, %(payload)s::jsonb))
     WHERE job_id = %(job_id)s::uuid
       AND function IS DISTINCT FROM function_of(%(executor)s::text, coalesce(payload, %(payload)s::jsonb)))
UPDATE jobs
   SET name = %(name)s::text, description = %(description)s::text, tags = %(tags)s::text[],
       executor = %(executor)s::text, payload = %(payload)s::jsonb, cron_expr = %(cron_expr)s::text,
       run_at = %(run_at)s::timestamptz, timezone = %(timezone)s::text, start_at = %(start_at)s::timestamptz,
       end_at = %(end_at)s::timestamptz, jitter_seconds = %(jitter_seconds)s::float8,
       priority = %(priority)s::smallint, max_attempts = %(max_attempts)s::int,
       timeout_seconds = %(timeout_seconds)s::float8, catch_up = %(catch_up)s::text,
       catch_up_limit = %(catch_up_limit)s::int, overlap = %(overlap)s::text,
       on_lease_loss = %(on_lease_loss)s::text, retry_mode = %(retry_mode)s::text,
       retry_base_seconds = %(retry_base_seconds)s::float8, retry_cap_seconds = %(retry_cap_seconds)s::float8,
       next_run_at = %(next_run_at)s::timestamptz,
       version = version + 1, updated_at = clock_timestamp()
 WHERE id = %(job_id)s::uuid
