-- Wait until nobody is at work on an unfinished run of a job.
-- in: job_id uuid
-- out: how many runs are unfinished, as a number that is old when it arrives
-- locks: the rows, for the time of the statement: call it outside of a transaction, holding nothing
-- index: queue_job_idx
WITH settled AS MATERIALIZED (
    SELECT FROM queue WHERE job_id = %(job_id)s::uuid FOR SHARE)
SELECT count(*) AS count FROM settled
