-- A page of runs, newest first, without their output.
-- in: job_id uuid or NULL (any), status text or NULL (any), before uuid or NULL (from the newest), max_rows int
-- out: as get_run, the output's text empty
-- index: the primary keys of queue and finished_runs, finished_runs_job_idx, finished_runs_status_idx
-- why: planned anew each time, never prepared, so that a NULL filter drops out of the plan
SELECT r.id, r.job_id, j.name AS job_name, r.status, r.attempt, r.failures, r.max_attempts, r.trigger, r.is_catch_up,
       r.scheduled_for, r.started_at, r.finished_at, r.worker_id, r.lease_expires, r.next_attempt_at, r.outcome,
       r.exit_code, r.signal, r.http_status, r.progress, r.progress_note, r.error, r.error_type, r.retry_of,
       r.cancel_requested_at, r.is_held, r.missing_function, r.payload, '' AS output_head, '' AS output_tail,
       r.output_bytes
  FROM (SELECT * FROM runs
         WHERE (%(job_id)s::uuid IS NULL OR job_id = %(job_id)s::uuid)
           AND (%(status)s::text IS NULL OR status = %(status)s::text)
           AND (%(before)s::uuid IS NULL OR id < %(before)s::uuid)
         ORDER BY id DESC
         LIMIT %(max_rows)s::int) AS r
  JOIN jobs AS j ON j.id = r.job_id
 ORDER BY r.id DESC
