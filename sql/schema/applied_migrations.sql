-- What this database has been migrated with.
-- in: (nothing)
-- out: version, checksum, oldest first
SELECT version, checksum FROM schema_migrations ORDER BY version
