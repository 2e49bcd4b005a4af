-- Where this session really is.
-- in: (nothing)
-- out: the process that serves it, whether the server is a standby
SELECT pg_backend_pid() AS backend_pid, pg_is_in_recovery() AS is_standby
