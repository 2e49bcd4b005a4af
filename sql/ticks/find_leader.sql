-- Who leads: whether somebody holds the leader's lock at all, and who was the last to say that it got it.
-- in: (nothing)
-- out: one row: is_led; worker_id and term, NULL when there was never a leader
-- locks: none; the lock is only looked for, the way that pg_locks shows a key of 64 bits
WITH lock AS (SELECT hashtextextended('forgeflow leader of ' || current_schema(), 0) AS key)
SELECT EXISTS (SELECT FROM pg_locks AS p
                WHERE p.locktype = 'advisory' AND p.granted AND p.objsubid = 1
                  AND p.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND p.classid = ((lock.key >> 32) & 4294967295)::oid
                  AND p.objid = (lock.key & 4294967295)::oid) AS is_led,
       l.worker_id, l.term
  FROM lock LEFT JOIN leader AS l ON true
