-- How many jobs there are of each status, as get_job derives it.
-- in: (nothing)
-- out: status (active, paused, cancelled, completed), count; a status without jobs has no row
SELECT CASE WHEN j.status = 'active' AND j.next_run_at IS NULL
             AND NOT EXISTS (SELECT FROM queue AS q WHERE q.job_id = j.id)
            THEN 'completed' ELSE j.status END AS status,
       count(*) AS count
  FROM jobs AS j
 GROUP BY 1
