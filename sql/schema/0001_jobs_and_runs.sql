-- Jobs, their runs, the workers that own runs, and the ledger of ticks.
-- Runs in whatever schema the search_path names first; nothing here is qualified.

-- Keys sort by time of creation (the layout of UUID version 7); PostgreSQL has this of its own only from 18 on.
CREATE FUNCTION uuid_v7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
               placing substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
               FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- Wait after that many failures: jitter, 0 to 1, of min(cap, base * 2^(failures - 1)). The exponent is clamped, for
-- 2^n overflows long before anybody's max_attempts.
CREATE FUNCTION retry_delay(failures int, base_seconds float8, cap_seconds float8, jitter float8)
RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT make_interval(secs => jitter * least(cap_seconds, base_seconds * 2 ^ least(greatest(failures, 1) - 1, 40)))
$$;

CREATE TABLE jobs (
    id              uuid PRIMARY KEY DEFAULT uuid_v7(),
    name            text NOT NULL,
    description     text NOT NULL DEFAULT '',
    tags            text[] NOT NULL DEFAULT '{}',
    executor        text NOT NULL,
    payload         jsonb NOT NULL,
    cron_expr       text,
    run_at          timestamptz,
    timezone        text NOT NULL DEFAULT 'UTC',
    priority        smallint NOT NULL DEFAULT 5,
    max_attempts    int NOT NULL DEFAULT 3,
    timeout_seconds float8 NOT NULL DEFAULT 300,
    catch_up        text NOT NULL DEFAULT 'skip',
    catch_up_limit  int NOT NULL DEFAULT 10,
    idempotency_key text,
    request_digest  bytea,
    status          text NOT NULL DEFAULT 'active',
    next_run_at     timestamptz,
    version         int NOT NULL DEFAULT 1,
    source          text NOT NULL DEFAULT 'sql',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT jobs_idempotency_key UNIQUE (idempotency_key),
    CONSTRAINT jobs_name_length CHECK (char_length(name) BETWEEN 1 AND 200),
    CONSTRAINT jobs_executor_known CHECK (executor IN ('shell', 'http', 'python')),
    CONSTRAINT jobs_payload_is_object CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT jobs_one_schedule CHECK (cron_expr IS NULL OR run_at IS NULL),
    -- What Python cannot read, BC or infinity, would end the scheduler's pass for everybody.
    CONSTRAINT jobs_times_readable CHECK (run_at BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 23:59:59.999999Z'
                                          AND next_run_at BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 23:59:59.999999Z'),
    CONSTRAINT jobs_priority_range CHECK (priority BETWEEN 1 AND 9),
    CONSTRAINT jobs_max_attempts_range CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT jobs_timeout_range CHECK (timeout_seconds > 0 AND timeout_seconds <= 31622400),
    CONSTRAINT jobs_catch_up_known CHECK (catch_up IN ('skip', 'once', 'all')),
    CONSTRAINT jobs_catch_up_limit_range CHECK (catch_up_limit BETWEEN 1 AND 1000),
    CONSTRAINT jobs_key_has_digest CHECK ((idempotency_key IS NULL) = (request_digest IS NULL)),
    CONSTRAINT jobs_status_known CHECK (status IN ('active', 'paused', 'cancelled')),
    CONSTRAINT jobs_only_active_are_due CHECK (status = 'active' OR next_run_at IS NULL),
    CONSTRAINT jobs_version_positive CHECK (version > 0)
);
CREATE INDEX jobs_due_idx ON jobs (next_run_at) WHERE next_run_at IS NOT NULL;

-- The ledger: the database itself refuses to fire a tick twice, also long after its run has finished.
CREATE TABLE ticks (
    job_id  uuid NOT NULL REFERENCES jobs ON DELETE CASCADE,
    tick_at timestamptz NOT NULL,
    run_id  uuid NOT NULL,
    term    bigint NOT NULL,
    fired_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, tick_at),
    CONSTRAINT ticks_one_run UNIQUE (run_id, job_id, tick_at)
);

-- A stretch of ticks that nobody ran, one row for all of them.
CREATE TABLE tick_gaps (
    job_id  uuid NOT NULL REFERENCES jobs ON DELETE CASCADE,
    from_at timestamptz NOT NULL,
    to_at   timestamptz NOT NULL,
    reason  text NOT NULL,
    PRIMARY KEY (job_id, from_at),
    CONSTRAINT tick_gaps_forward CHECK (from_at <= to_at),
    CONSTRAINT tick_gaps_reason_known CHECK (reason IN ('missed', 'coalesced'))
);

-- Unfinished runs. A claim changes only columns that no index holds, in key or predicate, so that it stays a
-- heap-only update; that is why no index here knows the owner, and why rows are kept loose.
CREATE TABLE queue (
    id                  uuid PRIMARY KEY DEFAULT uuid_v7(),
    job_id              uuid NOT NULL REFERENCES jobs,
    job_version         int NOT NULL,
    priority            smallint NOT NULL,
    scheduled_for       timestamptz NOT NULL,
    run_after           timestamptz NOT NULL,
    tick_at             timestamptz,
    trigger             text NOT NULL,
    is_catch_up         boolean NOT NULL DEFAULT false,
    retry_of            uuid,
    max_attempts        int NOT NULL,
    attempt             int NOT NULL DEFAULT 0,
    failures            int NOT NULL DEFAULT 0,
    interruptions       int NOT NULL DEFAULT 0,
    boot_id             uuid,
    child               int,
    started_at          timestamptz,
    cancel_requested_at timestamptz,
    CONSTRAINT queue_tick FOREIGN KEY (id, job_id, tick_at) REFERENCES ticks (run_id, job_id, tick_at),
    CONSTRAINT queue_trigger_known CHECK (trigger IN ('cron', 'once', 'manual', 'catch_up', 'retry')),
    CONSTRAINT queue_scheduled_run_has_tick CHECK (trigger NOT IN ('cron', 'catch_up') OR tick_at IS NOT NULL),
    CONSTRAINT queue_catch_up_is_marked CHECK (is_catch_up = (trigger = 'catch_up')),
    CONSTRAINT queue_owner_whole CHECK ((boot_id IS NULL) = (child IS NULL) AND (boot_id IS NULL) = (started_at IS NULL)),
    CONSTRAINT queue_tries_left CHECK (failures >= 0 AND failures < max_attempts),
    CONSTRAINT queue_priority_range CHECK (priority BETWEEN 1 AND 9),
    CONSTRAINT queue_times_readable CHECK (scheduled_for BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 23:59:59.999999Z'
                                           AND run_after BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 23:59:59.999999Z')
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX queue_due_idx ON queue (priority, run_after, id);
CREATE INDEX queue_job_idx ON queue (job_id);
CREATE INDEX queue_cancel_idx ON queue (id) WHERE cancel_requested_at IS NOT NULL;

-- One row for each living worker process. The lease is the worker's and covers all that it has claimed.
CREATE TABLE workers (
    boot_id          uuid NOT NULL,
    child            int NOT NULL,
    worker_id        text NOT NULL,
    lease_expires_at timestamptz NOT NULL,
    PRIMARY KEY (boot_id, child)
) WITH (fillfactor = 50);

CREATE TABLE nodes (
    boot_id      uuid PRIMARY KEY,
    worker_id    text NOT NULL,
    hostname     text NOT NULL,
    machine      text NOT NULL,
    pid          int NOT NULL,
    roles        text[] NOT NULL,
    concurrency  int NOT NULL,
    version      text NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Who leads, and for the how-manieth time somebody does. The advisory lock decides; this row tells.
CREATE TABLE leader (
    singleton boolean PRIMARY KEY DEFAULT true,
    term      bigint NOT NULL,
    boot_id   uuid NOT NULL,
    worker_id text NOT NULL,
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT leader_one_row CHECK (singleton)
);

-- Finished runs: inserted once, never changed, pruned when old.
CREATE TABLE finished_runs (
    id            uuid PRIMARY KEY,
    job_id        uuid NOT NULL,
    job_version   int NOT NULL,
    priority      smallint NOT NULL,
    scheduled_for timestamptz NOT NULL,
    tick_at       timestamptz,
    trigger       text NOT NULL,
    is_catch_up   boolean NOT NULL,
    retry_of      uuid,
    max_attempts  int NOT NULL,
    attempt       int NOT NULL,
    failures      int NOT NULL,
    interruptions int NOT NULL,
    boot_id       uuid,
    child         int,
    worker_id     text,
    started_at    timestamptz,
    cancel_requested_at timestamptz,
    status        text NOT NULL,
    finished_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    exit_code     int,
    error         text,
    error_type    text,
    output_head   text NOT NULL DEFAULT '',
    output_tail   text NOT NULL DEFAULT '',
    output_bytes  bigint NOT NULL DEFAULT 0,
    CONSTRAINT finished_runs_status_known CHECK (status IN ('succeeded', 'dead', 'cancelled')),
    CONSTRAINT finished_runs_dead_is_exhausted CHECK (status <> 'dead' OR failures >= max_attempts)
);
CREATE INDEX finished_runs_job_idx ON finished_runs (job_id, id);
CREATE INDEX finished_runs_status_idx ON finished_runs (status, id);

-- Ended attempts that were not the run's last; an attempt handed back before it began leaves none.
CREATE TABLE attempts (
    run_id       uuid NOT NULL,
    attempt      int NOT NULL,
    boot_id      uuid NOT NULL,
    child        int NOT NULL,
    worker_id    text,
    started_at   timestamptz NOT NULL,
    ended_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    charged      boolean NOT NULL,
    exit_code    int,
    error        text NOT NULL,
    error_type   text NOT NULL,
    output_head  text NOT NULL DEFAULT '',
    output_tail  text NOT NULL DEFAULT '',
    output_bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, attempt)
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: refused for run %', TG_NAME, OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END
$$;
CREATE TRIGGER finished_runs_are_final BEFORE UPDATE ON finished_runs
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER queue_attempt_only_grows BEFORE UPDATE ON queue
    FOR EACH ROW WHEN (NEW.attempt < OLD.attempt) EXECUTE FUNCTION refuse_change();

-- Everything that is or was a run, as the API shows it.
CREATE VIEW runs AS
SELECT q.id, q.job_id, q.job_version, q.priority, q.scheduled_for, q.tick_at, q.trigger, q.is_catch_up, q.retry_of,
       q.max_attempts, q.attempt, q.failures, q.interruptions, w.worker_id, q.started_at, q.cancel_requested_at,
       CASE WHEN q.boot_id IS NULL THEN 'pending' ELSE 'running' END AS status,
       CASE WHEN q.boot_id IS NULL THEN q.run_after END AS next_attempt_at,
       w.lease_expires_at AS lease_expires, NULL::timestamptz AS finished_at, NULL::int AS exit_code,
       NULL::text AS error, NULL::text AS error_type, '' AS output_head, '' AS output_tail, 0::bigint AS output_bytes
  FROM queue q LEFT JOIN workers w ON w.boot_id = q.boot_id AND w.child = q.child
UNION ALL
SELECT f.id, f.job_id, f.job_version, f.priority, f.scheduled_for, f.tick_at, f.trigger, f.is_catch_up, f.retry_of,
       f.max_attempts, f.attempt, f.failures, f.interruptions, f.worker_id, f.started_at, f.cancel_requested_at,
       f.status, NULL, NULL, f.finished_at, f.exit_code, f.error, f.error_type, f.output_head, f.output_tail,
       f.output_bytes
  FROM finished_runs f;
