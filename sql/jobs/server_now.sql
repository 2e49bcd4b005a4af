-- The database's clock, which decides what is due.
-- in: (nothing)
-- out: now
SELECT clock_timestamp() AS now
