-- Remember a stretch of ticks that were not run.
-- in: job_id uuid, from_at timestamptz, to_at timestamptz, reason text (missed, coalesced)
-- out: nothing
INSERT INTO tick_gaps (job_id, from_at, to_at, reason)
VALUES (%(job_id)s::uuid, %(from_at)s::timestamptz, %(to_at)s::timestamptz, %(reason)s::text)
    ON CONFLICT (job_id, from_at) DO UPDATE SET to_at = greatest(tick_gaps.to_at, EXCLUDED.to_at)
