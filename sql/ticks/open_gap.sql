-- Begin a stretch of ticks that are not run until further notice.
-- in: job_id uuid, from_at timestamptz, reason text (paused, cancelled)
-- out: nothing
-- locks: the job is held by the caller; it has no other open stretch
INSERT INTO tick_gaps (job_id, from_at, reason)
VALUES (%(job_id)s::uuid, %(from_at)s::timestamptz, %(reason)s::text)
    ON CONFLICT (job_id, from_at) DO UPDATE SET to_at = NULL, reason = EXCLUDED.reason
