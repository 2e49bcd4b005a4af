-- Let the server end this session when it says nothing for so long.
-- in: idle_seconds float8
-- out: the setting
SELECT set_config('idle_session_timeout', (%(idle_seconds)s::float8 * 1000)::bigint::text, false) AS value
