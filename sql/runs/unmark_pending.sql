-- Have the pending runs of a job release nothing: all that are held behind them go with them.
-- in: job_id uuid
-- out: nothing
-- locks: the rows; lock_runs goes before       index: queue_job_idx
-- why: deleted with their marks, each would look for a held run among all that were deleted before it
UPDATE queue SET has_follower = false
 WHERE job_id = %(job_id)s::uuid AND boot_id IS NULL AND has_follower
