-- Make one run of a job, due now.
-- in: job_id uuid, trigger text (once, manual)
-- out: the run's id; no row when there is no such job or it is cancelled
-- locks: the job FOR SHARE: a cancel waits, or is seen
WITH job AS MATERIALIZED (
    SELECT id, version, priority, max_attempts FROM jobs
     WHERE id = %(job_id)s::uuid AND status <> 'cancelled'
       FOR SHARE)
INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts)
SELECT id, version, priority, clock_timestamp(), clock_timestamp(), %(trigger)s::text, max_attempts FROM job
RETURNING id
