-- Hold finished runs while it is decided whether they are made again.
-- in: run_ids uuid[]
-- out: id, job_id, status, and job_overlap as it is now, unlocked (NULL: there is no such job); no row for a run that is none
-- out: or has not finished
-- locks: the runs, NO KEY UPDATE, in the order of their ids: whoever retries one of them waits
-- index: finished_runs_pkey
SELECT f.id, f.job_id, f.status, j.overlap AS job_overlap
  FROM finished_runs AS f LEFT JOIN jobs AS j ON j.id = f.job_id
 WHERE f.id = ANY (%(run_ids)s::uuid[])
 ORDER BY f.id
   FOR NO KEY UPDATE OF f
