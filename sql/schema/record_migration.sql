-- Note that a schema file was applied, in its own transaction.
-- in: version int, name text, checksum text
-- out: nothing
INSERT INTO schema_migrations (version, name, checksum)
VALUES (%(version)s::int, %(name)s::text, %(checksum)s::text)
