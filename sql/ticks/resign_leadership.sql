-- Give the leader's lock back and tell the standbys.
-- in: (nothing)
-- out: one row
-- why: in one statement: the lock is free before the notification goes out at the commit, so who hears it gets it
SELECT pg_advisory_unlock_all()::text AS unlocked, pg_notify(current_schema() || '_leader', '')::text AS told
