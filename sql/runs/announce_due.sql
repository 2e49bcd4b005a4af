-- Tell every node that runs have become due.
-- in: (nothing)
-- out: nothing
-- why: a constant payload, so that many in one transaction are one; never part of claim or finish, for NOTIFY
-- why: serialises commits
SELECT pg_notify(current_schema() || '_due', '')
