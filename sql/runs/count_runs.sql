-- How many runs there are of each status.
-- in: (nothing)
-- out: status, count; a status without runs has no row
-- index: finished_runs_status_idx alone, for the history
SELECT CASE WHEN boot_id IS NULL THEN 'pending' ELSE 'running' END AS status, count(*) AS count FROM queue GROUP BY 1
UNION ALL
SELECT status, count(*) FROM finished_runs GROUP BY status
