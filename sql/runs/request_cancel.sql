-- Ask the workers of a job's running runs to stop them; goes after cancel_pending_runs in the same transaction.
-- in: job_id uuid, reason text (what the run shows then)
-- out: the ids
-- locks: the runs
UPDATE queue
   SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
       cancel_reason = coalesce(cancel_reason, %(reason)s::text)
 WHERE job_id = %(job_id)s::uuid AND boot_id IS NOT NULL
RETURNING id
