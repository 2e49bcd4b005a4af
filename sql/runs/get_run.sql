-- One run, whole.
-- in: run_id uuid
-- out: the run with its job's name; no row when there is none
SELECT r.id, r.job_id, j.name AS job_name, r.status, r.attempt, r.failures, r.max_attempts, r.trigger, r.is_catch_up,
       r.scheduled_for, r.started_at, r.finished_at, r.worker_id, r.lease_expires, r.next_attempt_at, r.outcome,
       r.exit_code, r.signal, r.http_status, r.progress, r.progress_note, r.error, r.error_type, r.retry_of,
       r.cancel_requested_at, r.is_held, r.missing_function, r.payload, r.output_head, r.output_tail, r.output_bytes
  FROM runs AS r JOIN jobs AS j ON j.id = r.job_id
 WHERE r.id = %(run_id)s::uuid
