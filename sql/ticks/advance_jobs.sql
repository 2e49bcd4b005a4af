-- Move the clocks of jobs on.
-- in: job_ids uuid[], olds timestamptz[] (the next_run_at that the decision was made for), news timestamptz[] (or NULL)
-- out: the id of each job that was moved; when one is missing somebody else moved it first, and then the whole
-- out: transaction must be undone
-- why: the guard is compared in the database's own resolution; it must never have been through JSON
UPDATE jobs AS j SET next_run_at = a.new
  FROM unnest(%(job_ids)s::uuid[], %(olds)s::timestamptz[], %(news)s::timestamptz[]) AS a(id, old, new)
 WHERE j.id = a.id AND j.next_run_at = a.old
RETURNING j.id
