-- What became of one tick.
-- in: job_id uuid, tick_at timestamptz
-- out: its outcome; no row when it has none of its own
-- index: ticks_pkey
SELECT outcome, run_id, blocked_by, fired_at FROM ticks
 WHERE job_id = %(job_id)s::uuid AND tick_at = %(tick_at)s::timestamptz
