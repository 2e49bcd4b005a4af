-- Count a new leadership and say whose it is.
-- in: boot_id uuid, worker_id text
-- out: the term, which only grows
INSERT INTO leader (term, boot_id, worker_id)
VALUES (1, %(boot_id)s::uuid, %(worker_id)s::text)
    ON CONFLICT (singleton) DO UPDATE
   SET term = leader.term + 1, boot_id = EXCLUDED.boot_id, worker_id = EXCLUDED.worker_id, since = clock_timestamp()
RETURNING term
