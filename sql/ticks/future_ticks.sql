-- A page of the jobs whose next tick is to come and was computed from a schedule.
-- in: after uuid or NULL (the last id of the page before), only uuid[] or NULL (no other jobs), max_rows int
-- out: what is needed to compute the tick again, by id; now, and the ticks to come that somebody has taken out
-- locks: none: most ticks are not going to move, and computing takes longer than a lock should be held
-- index: jobs_pkey; ticks_pkey for what was taken out
-- why: a paused job's clock stands at the end of its pause, which no time zone moves; a due tick fires as stored
SELECT j.id, j.name, j.version, j.cron_expr, j.timezone, j.start_at, j.end_at, j.next_run_at,
       clock_timestamp() AS now,
       ARRAY(SELECT t.tick_at FROM ticks AS t
              WHERE t.job_id = j.id AND t.tick_at > now() AND t.outcome = 'skip_next') AS skipped
  FROM jobs AS j
 WHERE j.id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
   AND (%(only)s::uuid[] IS NULL OR j.id = ANY (%(only)s::uuid[]))
   AND j.status = 'active' AND j.cron_expr IS NOT NULL AND j.next_run_at > now()
 ORDER BY j.id
 LIMIT %(max_rows)s::int
