-- The ended attempts of a run that were not its last, oldest first.
-- in: run_id uuid
-- out: one row per attempt
SELECT attempt, worker_id, started_at, ended_at, charged, outcome_of(NULL, error_type) AS outcome, exit_code,
       signal, http_status, error, error_type, output_head, output_tail, output_bytes
  FROM attempts
 WHERE run_id = %(run_id)s::uuid
 ORDER BY attempt
