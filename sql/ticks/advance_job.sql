-- Move a job's clock on.
-- in: job_id uuid, old timestamptz (the next_run_at that the decision was made for), new timestamptz or NULL (no more)
-- out: true; no row when somebody else moved it first, and then the whole transaction must be undone
-- why: the guard is compared in the database's own resolution; it must never have been through JSON
UPDATE jobs SET next_run_at = %(new)s::timestamptz
 WHERE id = %(job_id)s::uuid AND next_run_at = %(old)s::timestamptz
RETURNING true AS advanced
