-- Give one tick the outcome that it has no run.
-- in: job_id uuid, tick_at timestamptz, outcome text (overlap, skip_next), blocked_by uuid or NULL (the run in its way),
-- in: term bigint or NULL (not by a leader)
-- out: true; no row when this tick has had its outcome before
INSERT INTO ticks (job_id, tick_at, term, outcome, blocked_by)
VALUES (%(job_id)s::uuid, %(tick_at)s::timestamptz, coalesce(%(term)s::bigint, (SELECT term FROM leader), 0),
        %(outcome)s::text, %(blocked_by)s::uuid)
    ON CONFLICT (job_id, tick_at) DO NOTHING
RETURNING true AS skipped
