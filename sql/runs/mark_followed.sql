-- Have each unfinished run of a job release, when it leaves the queue, the run that is held behind it.
-- in: job_id uuid
-- out: nothing
-- locks: the rows; lock_unfinished goes before, in the same transaction       index: queue_job_idx
UPDATE queue SET has_follower = true
 WHERE job_id = %(job_id)s::uuid AND NOT has_follower
