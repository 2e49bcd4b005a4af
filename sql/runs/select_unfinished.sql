-- Unfinished runs, oldest first.
-- in: job_id uuid or NULL (any), status text or NULL (pending, running, or both), since timestamptz or NULL,
-- in: until timestamptz or NULL (of what they were scheduled for, both included), max_rows int
-- out: id
-- index: queue_job_idx or queue_pkey
-- why: planned anew each time, never prepared, so that a NULL filter drops out of the plan
SELECT q.id
  FROM queue AS q
 WHERE (%(status)s::text IS NULL OR (q.boot_id IS NULL) = (%(status)s::text = 'pending'))
   AND (%(job_id)s::uuid IS NULL OR q.job_id = %(job_id)s::uuid)
   AND (%(since)s::timestamptz IS NULL OR q.scheduled_for >= %(since)s::timestamptz)
   AND (%(until)s::timestamptz IS NULL OR q.scheduled_for <= %(until)s::timestamptz)
 ORDER BY q.id
 LIMIT %(max_rows)s::int
