-- How many jobs there are of each stored status.
-- in: (nothing)
-- out: status, count
SELECT status, count(*) AS count FROM jobs GROUP BY status
