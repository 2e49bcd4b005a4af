-- Have each unfinished run of a job release, when it leaves the queue, the run that is held behind it.
-- in: job_id uuid
-- out: nothing
-- locks: the rows; they are locked before, in the same transaction       index: queue_job_idx
-- why: a held run is marked when it is released: deleted as it is, with others, it has nothing to release
UPDATE queue SET has_follower = true
 WHERE job_id = %(job_id)s::uuid AND NOT has_follower AND NOT is_held
