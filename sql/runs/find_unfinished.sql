-- One unfinished run of each job that has any.
-- in: job_ids uuid[]
-- out: job_id, run_id; no row for a job without unfinished runs
-- index: queue_job_idx, one row for each job however many it has
SELECT asked.id AS job_id, found.id AS run_id
  FROM unnest(%(job_ids)s::uuid[]) AS asked(id)
 CROSS JOIN LATERAL (SELECT id FROM queue WHERE job_id = asked.id LIMIT 1) AS found
