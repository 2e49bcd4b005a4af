-- Ticks to come that are not going to run because somebody said so.
-- in: job_id uuid, after timestamptz
-- out: tick_at, soonest first
-- index: ticks_pkey
SELECT tick_at FROM ticks
 WHERE job_id = %(job_id)s::uuid AND tick_at > %(after)s::timestamptz AND outcome = 'skip_next'
 ORDER BY tick_at
