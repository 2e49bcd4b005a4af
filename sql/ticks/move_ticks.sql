-- Move the next ticks of jobs that are as they were when their ticks were computed.
-- in: job_ids uuid[], versions int[], old timestamptz[] (the next_run_at that was read), new timestamptz[] (NULL in it: no more)
-- out: the jobs whose ticks were moved; the others are locked or were changed, or their old tick is due by now
-- locks: the jobs, NO KEY UPDATE; waits for none (SKIP LOCKED)
-- why: the version too, for an edit may give another schedule the same next tick
-- why: a tick that has come due since then is fired as stored, like any other
WITH held AS (
    SELECT j.id, m.new
      FROM unnest(%(job_ids)s::uuid[], %(versions)s::int[], %(old)s::timestamptz[], %(new)s::timestamptz[])
           AS m (id, version, old, new)
      JOIN jobs AS j ON j.id = m.id
     WHERE j.version = m.version AND j.next_run_at = m.old AND j.next_run_at > clock_timestamp()
       FOR NO KEY UPDATE OF j SKIP LOCKED)
UPDATE jobs AS j SET next_run_at = h.new
  FROM held AS h
 WHERE j.id = h.id
RETURNING j.id
