-- What an attempt has shown from a place on.
-- in: run_id uuid, attempt int, place int8, max_rows int
-- out: first, text of each piece that reaches beyond the place, or holds it, in order
-- index: output_chunks_pkey
SELECT first, text FROM output_chunks
 WHERE run_id = %(run_id)s::uuid AND attempt = %(attempt)s::int
   AND first >= coalesce((SELECT max(first) FROM output_chunks
                           WHERE run_id = %(run_id)s::uuid AND attempt = %(attempt)s::int AND first <= %(place)s::int8), 0)
 ORDER BY first
 LIMIT %(max_rows)s::int
