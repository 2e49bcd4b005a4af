-- Tell every node that runs have become due.
-- in: (nothing)
-- out: nothing
-- why: a constant payload, so that many in one transaction are one; never part of claim or finish, for NOTIFY
-- why: serialises commits
-- why: not into a queue that is nearly full, where it would be an error, and of the commit: in a pipeline that is
-- why: more than psycopg can follow. Nobody reads that queue; heartbeats and polling find what is due
SELECT pg_notify(current_schema() || '_due', '') WHERE pg_notification_queue_usage() < 0.9
