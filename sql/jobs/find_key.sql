-- The job that an idempotency key made.
-- in: idempotency_key text
-- out: id, request_digest; no row when the key is free
SELECT id, request_digest FROM jobs WHERE idempotency_key = %(idempotency_key)s::text
