-- Owners of runs that have no workers row: the net under recovery.
-- in: (nothing)
-- out: boot_id, child
-- index: none, a scan of the queue; the leader asks once a minute
SELECT DISTINCT q.boot_id, q.child
  FROM queue AS q
 WHERE q.boot_id IS NOT NULL
   AND NOT EXISTS (SELECT FROM workers AS w WHERE w.boot_id = q.boot_id AND w.child = q.child)
