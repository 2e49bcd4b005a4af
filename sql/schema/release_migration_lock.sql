-- Let the next process migrate.
-- in: schema text
-- out: whether it was held
SELECT pg_advisory_unlock(hashtextextended('forgeflow migration of ' || %(schema)s::text, 0)) AS won
