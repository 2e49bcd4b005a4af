-- How an attempt ends, what is seen of it while it lasts, and how it is tried again.

ALTER TABLE jobs
    ADD COLUMN retry_mode         text NOT NULL DEFAULT 'jitter',
    ADD COLUMN retry_base_seconds float8,
    ADD COLUMN retry_cap_seconds  float8,
    ADD CONSTRAINT jobs_retry_mode_known CHECK (retry_mode IN ('jitter', 'exponential', 'fixed')),
    ADD CONSTRAINT jobs_retry_base_range CHECK (retry_base_seconds > 0 AND retry_base_seconds <= 31622400),
    ADD CONSTRAINT jobs_retry_cap_range CHECK (retry_cap_seconds > 0 AND retry_cap_seconds <= 31622400),
    ADD CONSTRAINT jobs_retry_base_within_cap CHECK (retry_base_seconds <= retry_cap_seconds);

-- Wait after that many failures, within the cap: `exponential` is base * 2^(failures - 1), `jitter` a random part of that
-- (jitter_part, 0 to 1), `fixed` the base each time. The exponent is clamped, for 2^n overflows long before anybody's
-- max_attempts.
DROP FUNCTION retry_delay(int, float8, float8, float8);
CREATE FUNCTION retry_delay(failures int, mode text, base_seconds float8, cap_seconds float8, jitter_part float8)
RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT make_interval(secs => CASE mode WHEN 'jitter' THEN jitter_part ELSE 1 END
                                 * least(cap_seconds, base_seconds * CASE mode WHEN 'fixed' THEN 1
                                                     ELSE 2 ^ least(greatest(failures, 1) - 1, 40) END))
$$;

-- A postponement is an attempt that asked to be made later: it uses up no try, but there is an end to them.
ALTER TABLE queue
    ADD COLUMN postponements int NOT NULL DEFAULT 0,
    ADD COLUMN progress      smallint,
    ADD COLUMN progress_note text,
    ADD CONSTRAINT queue_progress_range CHECK (progress BETWEEN 0 AND 100);

ALTER TABLE finished_runs
    ADD COLUMN signal      int,
    ADD COLUMN http_status int;
ALTER TABLE attempts
    ADD COLUMN signal      int,
    ADD COLUMN http_status int;

-- Who tries a finished run again is looked up by the run that was tried before.
CREATE INDEX queue_retry_idx ON queue (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX finished_runs_retry_idx ON finished_runs (retry_of) WHERE retry_of IS NOT NULL;

-- What a run that lasts has printed so far, as clean text; `first` is where a piece begins in all that was printed by
-- this attempt, counted in characters, and in bytes where no piece has them, so that a gap between two pieces is seen.
-- Unlogged: it is worth something for minutes only, and its writing waits for no disk and no standby.
CREATE UNLOGGED TABLE output_chunks (
    run_id    uuid NOT NULL,
    attempt   int NOT NULL,
    first     bigint NOT NULL,
    text      text NOT NULL,
    added_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, attempt, first)
);
CREATE INDEX output_chunks_age_idx ON output_chunks (added_at);

-- What an attempt came to, in one word: the finer error_type stands beside it. The status is that of the run when it
-- was its last attempt, else NULL.
CREATE FUNCTION outcome_of(status text, error_type text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN status IN ('pending', 'running') THEN NULL
                WHEN status IN ('succeeded', 'cancelled') THEN status
                WHEN error_type IN ('timed_out', 'cancelled', 'lost') THEN error_type
                WHEN error_type IN ('interrupted', 'fenced') THEN 'interrupted'
                WHEN error_type IN ('crashed', 'wedged', 'signalled', 'memory') THEN 'crashed'
                WHEN error_type IN ('not_found', 'not_started', 'unsupported') THEN 'could_not_start'
                ELSE 'failed' END
$$;

CREATE OR REPLACE VIEW runs AS
SELECT q.id, q.job_id, q.job_version, q.priority, q.scheduled_for, q.tick_at, q.trigger, q.is_catch_up, q.retry_of,
       q.max_attempts, q.attempt, q.failures, q.interruptions, w.worker_id, q.started_at, q.cancel_requested_at,
       CASE WHEN q.boot_id IS NULL THEN 'pending' ELSE 'running' END AS status,
       CASE WHEN q.boot_id IS NULL AND NOT q.is_held THEN q.run_after END AS next_attempt_at,
       w.lease_expires_at AS lease_expires, NULL::timestamptz AS finished_at, NULL::int AS exit_code,
       NULL::text AS error, NULL::text AS error_type, '' AS output_head, '' AS output_tail, 0::bigint AS output_bytes,
       q.payload, q.is_held, NULL::text AS outcome, NULL::int AS signal, NULL::int AS http_status,
       q.progress, q.progress_note
  FROM queue q LEFT JOIN workers w ON w.boot_id = q.boot_id AND w.child = q.child
UNION ALL
SELECT f.id, f.job_id, f.job_version, f.priority, f.scheduled_for, f.tick_at, f.trigger, f.is_catch_up, f.retry_of,
       f.max_attempts, f.attempt, f.failures, f.interruptions, f.worker_id, f.started_at, f.cancel_requested_at,
       f.status, NULL, NULL, f.finished_at, f.exit_code, f.error, f.error_type, f.output_head, f.output_tail,
       f.output_bytes, f.payload, false, outcome_of(f.status, f.error_type), f.signal, f.http_status, NULL, NULL
  FROM finished_runs f;
