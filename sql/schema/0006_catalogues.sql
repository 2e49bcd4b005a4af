-- What functions the code of a worker has, so that it claims the runs of those alone.

-- The same code is one row, however many workers have it; the newest one seen first is the newest code.
CREATE TABLE catalogues (
    id            text PRIMARY KEY,
    functions     text[] NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE workers ADD COLUMN catalogue text REFERENCES catalogues;

-- The function that a run calls; NULL for what calls none, which every worker executes.
CREATE FUNCTION function_of(executor text, payload jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE executor WHEN 'python' THEN payload ->> 'function' END
$$;
ALTER TABLE queue ADD COLUMN function text;
UPDATE queue AS q SET function = function_of(j.executor, coalesce(q.payload, j.payload))
  FROM jobs AS j WHERE j.id = q.job_id;

-- The function when no living worker has it: its runs wait until one has.
CREATE FUNCTION missing_function(function text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT function
     WHERE function IS NOT NULL
       AND NOT EXISTS (SELECT FROM workers AS w JOIN catalogues AS c ON c.id = w.catalogue
                        WHERE w.lease_expires_at > clock_timestamp() AND missing_function.function = ANY (c.functions))
$$;

CREATE OR REPLACE VIEW runs AS
SELECT q.id, q.job_id, q.job_version, q.priority, q.scheduled_for, q.tick_at, q.trigger, q.is_catch_up, q.retry_of,
       q.max_attempts, q.attempt, q.failures, q.interruptions, w.worker_id, q.started_at, q.cancel_requested_at,
       CASE WHEN q.boot_id IS NULL THEN 'pending' ELSE 'running' END AS status,
       CASE WHEN q.boot_id IS NULL AND NOT q.is_held THEN q.run_after END AS next_attempt_at,
       w.lease_expires_at AS lease_expires, NULL::timestamptz AS finished_at, NULL::int AS exit_code,
       NULL::text AS error, NULL::text AS error_type, '' AS output_head, '' AS output_tail, 0::bigint AS output_bytes,
       q.payload, q.is_held, NULL::text AS outcome, NULL::int AS signal, NULL::int AS http_status,
       q.progress, q.progress_note,
       CASE WHEN q.boot_id IS NULL THEN missing_function(q.function) END AS missing_function
  FROM queue q LEFT JOIN workers w ON w.boot_id = q.boot_id AND w.child = q.child
UNION ALL
SELECT f.id, f.job_id, f.job_version, f.priority, f.scheduled_for, f.tick_at, f.trigger, f.is_catch_up, f.retry_of,
       f.max_attempts, f.attempt, f.failures, f.interruptions, f.worker_id, f.started_at, f.cancel_requested_at,
       f.status, NULL, NULL, f.finished_at, f.exit_code, f.error, f.error_type, f.output_head, f.output_tail,
       f.output_bytes, f.payload, false, outcome_of(f.status, f.error_type), f.signal, f.http_status, NULL, NULL, NULL
  FROM finished_runs f;
