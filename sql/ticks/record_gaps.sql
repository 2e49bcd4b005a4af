-- Remember stretches of ticks that were not run, both ends included.
-- in: job_ids uuid[], from_ats timestamptz[], to_ats timestamptz[], reasons text[] (missed, coalesced, edited)
-- out: nothing
INSERT INTO tick_gaps AS g (job_id, from_at, to_at, reason)
SELECT * FROM unnest(%(job_ids)s::uuid[], %(from_ats)s::timestamptz[], %(to_ats)s::timestamptz[], %(reasons)s::text[])
    ON CONFLICT (job_id, from_at) DO UPDATE SET to_at = greatest(g.to_at, EXCLUDED.to_at)
