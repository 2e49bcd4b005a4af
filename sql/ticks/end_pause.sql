-- A pause that had an end is over.
-- in: job_id uuid, old timestamptz (its end, where the clock stands), new timestamptz or NULL (no tick left)
-- out: true; no row when somebody else was first
UPDATE jobs
   SET status = 'active', paused_until = NULL, pause_reason = NULL, next_run_at = %(new)s::timestamptz,
       version = version + 1, updated_at = clock_timestamp()
 WHERE id = %(job_id)s::uuid AND status = 'paused' AND next_run_at = %(old)s::timestamptz
RETURNING true AS ended
