-- Delete what attempts that are over have shown, ten minutes after it was written.
-- in: max_rows int
-- out: one row with the number that was deleted
-- index: output_chunks_age_idx, queue_pkey
-- why: by ctid, so that each is found again without its key; nobody else deletes pieces of what is over
WITH old AS (
    SELECT c.ctid FROM output_chunks AS c
     WHERE c.added_at < clock_timestamp() - interval '10 minutes'
       AND NOT EXISTS (SELECT FROM queue AS q
                        WHERE q.id = c.run_id AND q.attempt = c.attempt AND q.boot_id IS NOT NULL)
     ORDER BY c.added_at
     LIMIT %(max_rows)s::int),
gone AS (
    DELETE FROM output_chunks WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING run_id)
SELECT count(*) AS count FROM gone
