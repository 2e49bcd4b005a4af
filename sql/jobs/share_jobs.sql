-- Keep jobs from being changed while runs of them are made.
-- in: job_ids uuid[]
-- out: id, status, overlap; no row for a job that is none
-- locks: the jobs FOR SHARE, in the order of their ids: a change of one waits, other makers of runs do not
SELECT id, status, overlap
  FROM jobs
 WHERE id = ANY (%(job_ids)s::uuid[])
 ORDER BY id
   FOR SHARE
