-- Tell every node that runs shall be stopped, after the commit of the transaction that asks for it.
-- in: (nothing)
-- out: nothing
-- why: not inside that transaction, which a full queue of notifications would undo
SELECT pg_notify(current_schema() || '_due', 'cancel')
