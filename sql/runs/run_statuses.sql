-- What runs are at.
-- in: run_ids uuid[]
-- out: id, status; no row for a run that is none
-- index: queue_pkey, finished_runs_pkey
SELECT id, status FROM runs WHERE id = ANY (%(run_ids)s::uuid[])
