-- Show what a run that goes on has printed since the last time, and how far it has come.
-- in: run_id uuid, attempt int, boot_id uuid, child int, first int8 (its place, see the table), piece text (may be empty),
-- in: has_progress bool, progress int or NULL, progress_note text or NULL, limit int8 (characters kept of one attempt)
-- out: id of the run when it is this worker's; no row: it is somebody else's, nothing was written
-- locks: the run's row when its progress has changed; waits for nobody (SKIP LOCKED)
-- index: queue_pkey, output_chunks_pkey
-- why: a small piece is added to the one before it, for a minute, or a run that prints a word a second for a day would
-- why: leave 86,400 rows; added_at stays, so that no index has to know. The fence is no lock: what slips through is
-- why: kept under an attempt that nobody continues
WITH owned AS MATERIALIZED (
    SELECT id FROM queue
     WHERE id = %(run_id)s::uuid AND attempt = %(attempt)s::int
       AND boot_id = %(boot_id)s::uuid AND child = %(child)s::int),
latest AS (
    SELECT first FROM output_chunks
     WHERE run_id = %(run_id)s::uuid AND attempt = %(attempt)s::int
     ORDER BY first DESC LIMIT 1),
joined AS (
    UPDATE output_chunks AS c SET text = c.text || %(piece)s::text
      FROM owned, latest
     WHERE c.run_id = owned.id AND c.attempt = %(attempt)s::int AND c.first = latest.first
       AND c.first + length(c.text) = %(first)s::int8 AND length(c.text) < 4096
       AND c.added_at > clock_timestamp() - interval '1 minute'
    RETURNING c.run_id),
added AS (
    INSERT INTO output_chunks (run_id, attempt, first, text)
    SELECT id, %(attempt)s::int, %(first)s::int8, %(piece)s::text FROM owned
     WHERE %(piece)s::text <> '' AND NOT EXISTS (SELECT FROM joined)
    ON CONFLICT DO NOTHING),
dropped AS (
    DELETE FROM output_chunks AS c USING owned
     WHERE c.run_id = owned.id AND c.attempt = %(attempt)s::int
       AND c.first < %(first)s::int8 + length(%(piece)s::text) - %(limit)s::int8),
noted AS (
    UPDATE queue SET progress = %(progress)s::int, progress_note = %(progress_note)s::text
     WHERE %(has_progress)s::bool
       AND id IN (SELECT q.id FROM queue AS q JOIN owned USING (id) WHERE q.attempt = %(attempt)s::int
                     FOR NO KEY UPDATE OF q SKIP LOCKED))
SELECT id FROM owned
