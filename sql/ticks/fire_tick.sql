-- Make the run of one tick.
-- in: job_id uuid, tick_at timestamptz, trigger text (cron, once, catch_up), term bigint
-- out: the run's id; no row when this tick has fired before
-- why: the primary key of ticks is the guard, whatever leaders do
WITH tick AS (
    INSERT INTO ticks (job_id, tick_at, run_id, term)
    VALUES (%(job_id)s::uuid, %(tick_at)s::timestamptz, uuid_v7(), %(term)s::bigint)
        ON CONFLICT (job_id, tick_at) DO NOTHING
    RETURNING job_id, tick_at, run_id)
INSERT INTO queue (id, job_id, job_version, priority, scheduled_for, run_after, tick_at, trigger, is_catch_up,
                   max_attempts)
SELECT t.run_id, j.id, j.version, j.priority, t.tick_at, t.tick_at, t.tick_at, %(trigger)s::text,
       %(trigger)s::text = 'catch_up', j.max_attempts
  FROM tick AS t JOIN jobs AS j ON j.id = t.job_id
RETURNING id
