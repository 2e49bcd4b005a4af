-- The stretch of ticks that were not run to which an instant belongs.
-- in: job_id uuid, instant timestamptz
-- out: the latest such; no row when it belongs to none
-- index: tick_gaps_pkey
SELECT from_at, to_at, reason, note FROM tick_gaps
 WHERE job_id = %(job_id)s::uuid AND from_at <= %(instant)s::timestamptz
   AND (to_at IS NULL OR to_at >= %(instant)s::timestamptz)
 ORDER BY from_at DESC
 LIMIT 1
