-- The jobs that are due next.
-- in: max_rows int
-- out: id, name, schedule, next_run_at, soonest first
-- index: jobs_due_idx
SELECT id, name, cron_expr, timezone, next_run_at FROM jobs
 WHERE next_run_at IS NOT NULL AND status = 'active'
 ORDER BY next_run_at
 LIMIT %(max_rows)s::int
