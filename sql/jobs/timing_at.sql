-- What a job went by at an instant.
-- in: job_id uuid, instant timestamptz
-- out: cron_expr, run_at, timezone, start_at, end_at as they were then, since and until when (NULL: they still are);
-- out: no row when there is no such job
-- index: job_versions_pkey
-- why: at the very instant of an edit the old times still hold, for the new clock begins after it
SELECT t.cron_expr, t.run_at, t.timezone, t.start_at, t.end_at, v.until_at AS until,
       coalesce((SELECT max(until_at) FROM job_versions
                  WHERE job_id = j.id AND until_at < %(instant)s::timestamptz), j.created_at) AS since
  FROM jobs AS j
  LEFT JOIN LATERAL (SELECT definition, until_at FROM job_versions
                      WHERE job_id = j.id AND until_at >= %(instant)s::timestamptz
                      ORDER BY version LIMIT 1) AS v ON true
 CROSS JOIN LATERAL jsonb_to_record(coalesce(v.definition, to_jsonb(j)))
         AS t(cron_expr text, run_at timestamptz, timezone text, start_at timestamptz, end_at timestamptz)
 WHERE j.id = %(job_id)s::uuid
