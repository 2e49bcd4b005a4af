-- Many new jobs.
-- in: (nothing)
-- out: nothing
-- why: the columns between id and status in the order of JobDefinition
COPY jobs (id, name, description, tags, executor, payload, cron_expr, run_at, timezone, start_at, end_at,
           jitter_seconds, priority, max_attempts, timeout_seconds, catch_up, catch_up_limit, overlap, on_lease_loss,
           retry_mode, retry_base_seconds, retry_cap_seconds, status, next_run_at, source)
FROM STDIN
