-- Finished runs of a status that no other run has retried, oldest first.
-- in: job_id uuid or NULL (any), status text, since timestamptz or NULL, until timestamptz or NULL (of what they were
-- in: scheduled for, both included), max_rows int
-- out: id
-- index: finished_runs_job_idx or finished_runs_status_idx; queue_retry_idx, finished_runs_retry_idx
-- why: planned anew each time, never prepared, so that a NULL filter drops out of the plan
SELECT f.id
  FROM finished_runs AS f
 WHERE f.status = %(status)s::text
   AND (%(job_id)s::uuid IS NULL OR f.job_id = %(job_id)s::uuid)
   AND (%(since)s::timestamptz IS NULL OR f.scheduled_for >= %(since)s::timestamptz)
   AND (%(until)s::timestamptz IS NULL OR f.scheduled_for <= %(until)s::timestamptz)
   AND NOT EXISTS (SELECT FROM queue AS q WHERE q.retry_of = f.id)
   AND NOT EXISTS (SELECT FROM finished_runs AS r WHERE r.retry_of = f.id)
 ORDER BY f.id
 LIMIT %(max_rows)s::int
