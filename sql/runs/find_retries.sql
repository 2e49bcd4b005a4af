-- Which runs have retried some finished ones, and whether these can be made again as they were; lock_finished goes before.
-- in: run_ids uuid[]
-- out: id, unfinished_id (the retry that has not ended) or NULL, ended_id (the last one that has) or NULL, and fits: false for
-- out: a payload of the run's own that is for another executor than its job has now
-- index: queue_retry_idx, finished_runs_retry_idx, job_versions_pkey
-- why: a statement of its own, for that which waits for a lock sees what was there before the wait
SELECT f.id,
       (SELECT q.id FROM queue AS q WHERE q.retry_of = f.id ORDER BY q.id DESC LIMIT 1) AS unfinished_id,
       (SELECT r.id FROM finished_runs AS r WHERE r.retry_of = f.id ORDER BY r.id DESC LIMIT 1) AS ended_id,
       f.payload IS NULL OR coalesce((SELECT v.definition ->> 'executor' FROM job_versions AS v
                                       WHERE v.job_id = f.job_id AND v.version >= f.job_version
                                       ORDER BY v.version LIMIT 1), j.executor) = j.executor AS fits
  FROM finished_runs AS f JOIN jobs AS j ON j.id = f.job_id
 WHERE f.id = ANY (%(run_ids)s::uuid[])
