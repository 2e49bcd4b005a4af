-- A page of jobs, newest first.
-- in: before uuid or NULL (from the newest), max_rows int
-- out: as get_job
-- index: jobs_pkey, and for each row of the page queue_job_idx, finished_runs_job_idx
SELECT j.id, j.name, j.description, j.tags, j.executor, j.payload, j.cron_expr, j.run_at, j.timezone, j.priority,
       j.max_attempts, j.timeout_seconds, j.catch_up, j.catch_up_limit, j.overlap, j.start_at, j.end_at,
       j.jitter_seconds, j.on_lease_loss, j.retry_mode, j.retry_base_seconds, j.retry_cap_seconds, j.idempotency_key,
       j.paused_until, j.pause_reason,
       CASE WHEN j.status = 'active' AND j.next_run_at IS NULL
             AND NOT EXISTS (SELECT FROM queue AS q WHERE q.job_id = j.id)
            THEN 'completed' ELSE j.status END AS status,
       CASE j.status WHEN 'active' THEN j.next_run_at END AS next_run_at, j.version, j.source, j.created_at, j.updated_at,
       l.id AS last_run_id, l.status AS last_run_status, l.finished_at AS last_run_finished_at
  FROM (SELECT * FROM jobs
         WHERE %(before)s::uuid IS NULL OR id < %(before)s::uuid
         ORDER BY id DESC
         LIMIT %(max_rows)s::int) AS j
  LEFT JOIN LATERAL (SELECT r.id, r.status, r.finished_at FROM runs AS r
                      WHERE r.job_id = j.id ORDER BY r.id DESC LIMIT 1) AS l ON true
 ORDER BY j.id DESC
