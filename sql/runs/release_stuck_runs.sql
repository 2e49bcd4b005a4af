-- Release, of each job whose runs all wait for another one, the one that waits longest.
-- in: (nothing)
-- out: the ids; there should never be any
-- index: none: the net under the trigger that releases them, once a minute
UPDATE queue SET run_after = clock_timestamp(), has_follower = true
 WHERE id IN (SELECT DISTINCT ON (job_id) id FROM queue AS q
               WHERE is_held AND NOT EXISTS (SELECT FROM queue AS o WHERE o.job_id = q.job_id AND NOT o.is_held)
               ORDER BY job_id, scheduled_for, id)
RETURNING id
