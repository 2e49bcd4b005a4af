-- Make the runs of ticks.
-- in: job_ids uuid[], tick_ats timestamptz[], run_afters timestamptz[], triggers text[] (cron, once, catch_up),
-- in: are_held bool (they wait for another run of their job), term bigint
-- out: job_id, tick_at, run_id; no row for a tick that has had its outcome before
-- locks: none but those of the inserts; waits for another leader that is at the same tick
-- why: the primary key of ticks is the guard, whatever leaders do
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%(job_ids)s::uuid[], %(tick_ats)s::timestamptz[], %(run_afters)s::timestamptz[],
                         %(triggers)s::text[]) AS a(job_id, tick_at, run_after, trigger)),
tick AS (
    INSERT INTO ticks (job_id, tick_at, run_id, term, outcome)
    SELECT job_id, tick_at, uuid_v7(), %(term)s::bigint, CASE trigger WHEN 'catch_up' THEN 'caught_up' ELSE 'ran' END
      FROM asked
        ON CONFLICT (job_id, tick_at) DO NOTHING
    RETURNING job_id, tick_at, run_id),
made AS (
    INSERT INTO queue (id, job_id, job_version, priority, scheduled_for, run_after, tick_at, trigger, is_catch_up,
                       max_attempts, function)
    SELECT t.run_id, j.id, j.version, j.priority, t.tick_at,
           CASE WHEN %(are_held)s::bool THEN held_until() ELSE a.run_after END,
           t.tick_at, a.trigger, a.trigger = 'catch_up', j.max_attempts, function_of(j.executor, j.payload)
      FROM tick AS t
      JOIN asked AS a ON a.job_id = t.job_id AND a.tick_at = t.tick_at
      JOIN jobs AS j ON j.id = t.job_id)
SELECT job_id, tick_at, run_id FROM tick
