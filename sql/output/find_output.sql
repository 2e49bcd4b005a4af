-- Where one attempt of a run stands, for whoever reads what it prints.
-- in: run_id uuid, attempt int or NULL (the latest)
-- out: attempt; is_over, that attempt; is_finished, the run; next_attempt, the first after it that has begun, or NULL;
-- out: head, tail, total_bytes as stored, empty as long as nothing is; no row when there is no such run
-- index: queue_pkey, finished_runs_pkey, attempts_pkey, output_chunks_pkey
WITH run AS (
    SELECT r.id, r.status, r.attempt AS latest, coalesce(%(attempt)s::int, r.attempt) AS attempt, r.finished_at,
           r.output_head, r.output_tail, r.output_bytes
      FROM runs AS r WHERE r.id = %(run_id)s::uuid)
SELECT run.attempt,
       run.attempt < run.latest OR run.status <> 'running' AS is_over,
       run.finished_at IS NOT NULL AS is_finished,
       least((SELECT min(c.attempt) FROM output_chunks AS c WHERE c.run_id = run.id AND c.attempt > run.attempt),
             (SELECT min(b.attempt) FROM attempts AS b WHERE b.run_id = run.id AND b.attempt > run.attempt),
             CASE WHEN run.latest > run.attempt AND run.status <> 'pending' THEN run.latest END) AS next_attempt,
       coalesce(a.output_head, CASE WHEN run.attempt = run.latest THEN run.output_head END, '') AS head,
       coalesce(a.output_tail, CASE WHEN run.attempt = run.latest THEN run.output_tail END, '') AS tail,
       coalesce(a.output_bytes, CASE WHEN run.attempt = run.latest THEN run.output_bytes END, 0) AS total_bytes
  FROM run LEFT JOIN attempts AS a ON a.run_id = run.id AND a.attempt = run.attempt
