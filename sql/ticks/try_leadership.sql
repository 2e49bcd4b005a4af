-- Try to become leader: the lock belongs to this session and ends with it.
-- in: (nothing)
-- out: whether the lock was got
-- locks: a session advisory lock named after the schema; taken once a session, for taken twice it counts twice
SELECT pg_try_advisory_lock(hashtextextended('forgeflow leader of ' || current_schema(), 0)) AS won
