-- What a job's life is made of: a window, jitter, overlap, pauses that end, edits; and one outcome for each tick.

-- A held run waits for another run of its job, not for a time: no claim finds it, and no claim pays for that.
CREATE FUNCTION held_until() RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT timestamptz '9999-12-31 23:59:59.999999Z'
$$;

ALTER TABLE jobs
    ADD COLUMN start_at       timestamptz,
    ADD COLUMN end_at         timestamptz,
    ADD COLUMN jitter_seconds float8 NOT NULL DEFAULT 0,
    ADD COLUMN overlap        text NOT NULL DEFAULT 'allow',
    ADD COLUMN paused_until   timestamptz,
    ADD COLUMN pause_reason   text,
    ADD CONSTRAINT jobs_window_readable CHECK (start_at BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 23:59:59.999999Z'
                                           AND end_at BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 23:59:59.999999Z'),
    ADD CONSTRAINT jobs_window_forward CHECK (start_at <= end_at),
    ADD CONSTRAINT jobs_window_needs_schedule CHECK (cron_expr IS NOT NULL OR (start_at IS NULL AND end_at IS NULL)),
    ADD CONSTRAINT jobs_jitter_range CHECK (jitter_seconds BETWEEN 0 AND 86400),
    ADD CONSTRAINT jobs_overlap_known CHECK (overlap IN ('allow', 'skip', 'queue', 'replace')),
    ADD CONSTRAINT jobs_pause_needs_paused CHECK (status = 'paused' OR (paused_until IS NULL AND pause_reason IS NULL)),
    -- The clock of a job whose pause has an end stands at that end: the scheduler finds it as it finds a tick.
    DROP CONSTRAINT jobs_only_active_are_due,
    ADD CONSTRAINT jobs_clock_fits_status CHECK (
        CASE status WHEN 'active' THEN true
                    WHEN 'paused' THEN next_run_at IS NOT DISTINCT FROM paused_until
                    ELSE next_run_at IS NULL END);

-- What a job was before each edit, so that it can be told which ticks were expected then. What it is stands in jobs.
CREATE TABLE job_versions (
    job_id     uuid NOT NULL REFERENCES jobs ON DELETE CASCADE,
    version    int NOT NULL,
    until_at   timestamptz NOT NULL,
    definition jsonb NOT NULL,
    PRIMARY KEY (job_id, version)
);

ALTER TABLE ticks
    ALTER COLUMN run_id DROP NOT NULL,
    ADD COLUMN outcome    text NOT NULL DEFAULT 'ran',
    ADD COLUMN blocked_by uuid,
    ADD CONSTRAINT ticks_outcome_known CHECK (outcome IN ('ran', 'caught_up', 'overlap', 'skip_next')),
    ADD CONSTRAINT ticks_run_fits_outcome CHECK ((run_id IS NOT NULL) = (outcome IN ('ran', 'caught_up'))),
    ADD CONSTRAINT ticks_only_overlap_is_blocked CHECK ((blocked_by IS NOT NULL) = (outcome = 'overlap'));
UPDATE ticks AS t SET outcome = 'caught_up' FROM runs AS r WHERE r.id = t.run_id AND r.is_catch_up;

-- A stretch without an end is one that goes on: a pause, or the time after a job was cancelled.
ALTER TABLE tick_gaps
    ALTER COLUMN to_at DROP NOT NULL,
    ADD COLUMN note text,
    DROP CONSTRAINT tick_gaps_reason_known,
    ADD CONSTRAINT tick_gaps_reason_known CHECK (reason IN ('missed', 'coalesced', 'paused', 'cancelled', 'edited'));
INSERT INTO tick_gaps (job_id, from_at, reason)
SELECT id, updated_at, status FROM jobs WHERE status IN ('paused', 'cancelled')
    ON CONFLICT (job_id, from_at) DO UPDATE SET to_at = NULL, reason = EXCLUDED.reason;
CREATE UNIQUE INDEX tick_gaps_one_open_idx ON tick_gaps (job_id) WHERE to_at IS NULL;

-- A payload here is one run's own, instead of its job's.
ALTER TABLE queue
    ADD COLUMN payload jsonb,
    ADD COLUMN cancel_reason text,
    ADD COLUMN has_follower boolean NOT NULL DEFAULT false,
    ADD COLUMN is_held boolean NOT NULL GENERATED ALWAYS AS (run_after = held_until()) STORED,
    ADD CONSTRAINT queue_payload_is_object CHECK (jsonb_typeof(payload) = 'object'),
    ADD CONSTRAINT queue_held_is_pending CHECK (boot_id IS NULL OR NOT is_held);
-- The rows have grown; a claim stays a heap-only update only where its page has room for the new version.
ALTER TABLE queue SET (fillfactor = 50);
ALTER TABLE finished_runs ADD COLUMN payload jsonb;

-- When the last run of a job that another one waits for has left the queue, the longest waiting one is due.
-- Two that leave at the same time each still see the other: the advisory lock makes the second one look again.
CREATE FUNCTION release_held_run() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('forgeflow held runs of ' || OLD.job_id, 0));
    UPDATE queue SET run_after = clock_timestamp(), has_follower = true
     WHERE id = (SELECT id FROM queue WHERE job_id = OLD.job_id AND is_held ORDER BY scheduled_for, id LIMIT 1)
       AND NOT EXISTS (SELECT FROM queue WHERE job_id = OLD.job_id AND NOT is_held);
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_releases_held_run AFTER DELETE ON queue
    FOR EACH ROW WHEN (OLD.has_follower) EXECUTE FUNCTION release_held_run();

CREATE OR REPLACE VIEW runs AS
SELECT q.id, q.job_id, q.job_version, q.priority, q.scheduled_for, q.tick_at, q.trigger, q.is_catch_up, q.retry_of,
       q.max_attempts, q.attempt, q.failures, q.interruptions, w.worker_id, q.started_at, q.cancel_requested_at,
       CASE WHEN q.boot_id IS NULL THEN 'pending' ELSE 'running' END AS status,
       CASE WHEN q.boot_id IS NULL AND NOT q.is_held THEN q.run_after END AS next_attempt_at,
       w.lease_expires_at AS lease_expires, NULL::timestamptz AS finished_at, NULL::int AS exit_code,
       NULL::text AS error, NULL::text AS error_type, '' AS output_head, '' AS output_tail, 0::bigint AS output_bytes,
       q.payload, q.is_held
  FROM queue q LEFT JOIN workers w ON w.boot_id = q.boot_id AND w.child = q.child
UNION ALL
SELECT f.id, f.job_id, f.job_version, f.priority, f.scheduled_for, f.tick_at, f.trigger, f.is_catch_up, f.retry_of,
       f.max_attempts, f.attempt, f.failures, f.interruptions, f.worker_id, f.started_at, f.cancel_requested_at,
       f.status, NULL, NULL, f.finished_at, f.exit_code, f.error, f.error_type, f.output_head, f.output_tail,
       f.output_bytes, f.payload, false
  FROM finished_runs f;

-- Which time zone data the next ticks were computed with.
ALTER TABLE leader ADD COLUMN tz_version text;
