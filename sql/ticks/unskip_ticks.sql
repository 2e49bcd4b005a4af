-- Take ticks back in that somebody has taken out and that are to come; lock_job goes before.
-- in: job_id uuid, tick_at timestamptz or NULL (all of them)
-- out: tick_at of each
-- index: ticks_pkey
DELETE FROM ticks
 WHERE job_id = %(job_id)s::uuid AND outcome = 'skip_next' AND tick_at > clock_timestamp()
   AND (%(tick_at)s::timestamptz IS NULL OR tick_at = %(tick_at)s::timestamptz)
RETURNING tick_at
