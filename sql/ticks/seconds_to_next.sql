-- How long until a job is due: its next tick, or the end of its pause.
-- in: (nothing)
-- out: one row: seconds, not more than 0 when one is due, NULL when no job has a clock
-- index: jobs_due_idx
SELECT extract(epoch FROM min(next_run_at) - clock_timestamp())::float8 AS seconds
  FROM jobs WHERE next_run_at IS NOT NULL
