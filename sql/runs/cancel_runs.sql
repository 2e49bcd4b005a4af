-- Cancel runs: what waits ends at once, held runs too; what is running is asked to stop.
-- in: run_ids uuid[], statuses text[] (pending, running: those of them that are meant), reason text (what they show then)
-- out: id, status it has now (cancelled, or running: it was asked), frees_held (its end may have made a held run due);
-- out: a missing run has finished, has another status than was meant, or there is none
-- locks: the runs, in the order of their ids; waits for a claim or a report of one of them       index: queue_pkey
-- why: decided on what has been locked: a run is cancelled before it is claimed, or asked after it was, never both
WITH locked AS MATERIALIZED (
    SELECT id, boot_id IS NOT NULL AS is_running FROM queue
     WHERE id = ANY (%(run_ids)s::uuid[])
     ORDER BY id
       FOR NO KEY UPDATE),
asked AS (
    UPDATE queue
       SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
           cancel_reason = coalesce(cancel_reason, %(reason)s::text)
     WHERE id = ANY (ARRAY(SELECT id FROM locked WHERE is_running AND 'running' = ANY (%(statuses)s::text[])))
    RETURNING id),
removed AS (
    DELETE FROM queue
     WHERE id = ANY (ARRAY(SELECT id FROM locked WHERE NOT is_running AND 'pending' = ANY (%(statuses)s::text[])))
    RETURNING *),
kept AS (
    INSERT INTO finished_runs
           (id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
            attempt, failures, interruptions, payload, status, error, error_type)
    SELECT id, job_id, job_version, priority, scheduled_for, tick_at, trigger, is_catch_up, retry_of, max_attempts,
           attempt, failures, interruptions, payload, 'cancelled', %(reason)s::text, 'cancelled'
      FROM removed)
SELECT id, 'running' AS status, false AS frees_held FROM asked
UNION ALL
SELECT id, 'cancelled', has_follower FROM removed
