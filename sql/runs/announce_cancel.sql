-- Tell every node that runs shall be stopped; inside the transaction that asks for it, so it is heard after the commit.
-- in: (nothing)
-- out: nothing
SELECT pg_notify(current_schema() || '_due', 'cancel')
