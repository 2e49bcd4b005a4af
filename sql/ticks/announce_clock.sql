-- Tell the leader that a job may be due sooner than it knows.
-- in: (nothing)
-- out: nothing
-- why: on the channel that standbys listen on for a resignation: they try for the lock, and find it taken
SELECT pg_notify(current_schema() || '_leader', 'clock')
