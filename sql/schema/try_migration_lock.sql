-- Become the one process that migrates this schema.
-- in: schema text
-- out: whether the lock was got
-- locks: a session advisory lock
-- why: try, never wait: a waiter would hold a snapshot, and deadlock with CREATE INDEX CONCURRENTLY
SELECT pg_try_advisory_lock(hashtextextended('forgeflow migration of ' || %(schema)s::text, 0)) AS won
