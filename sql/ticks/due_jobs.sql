-- Jobs whose next tick has come, or whose pause has ended, longest due first.
-- in: max_rows int, now timestamptz or NULL (tests only)
-- out: what is needed to decide about their ticks, and the database's clock
-- locks: the jobs, NO KEY UPDATE: edits wait, inserts of runs do not; a job being edited is left for the next pass
-- index: jobs_due_idx
SELECT id, status, cron_expr, run_at, timezone, start_at, end_at, catch_up, catch_up_limit, overlap, jitter_seconds,
       pause_reason, next_run_at, coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
  FROM jobs
 WHERE next_run_at <= coalesce(%(now)s::timestamptz, now())
 ORDER BY next_run_at
 LIMIT %(max_rows)s::int
   FOR NO KEY UPDATE SKIP LOCKED
