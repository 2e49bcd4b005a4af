-- Let the server end this session when it says nothing for so long, in a transaction or outside of one.
-- in: idle_seconds float8
-- out: a row for each setting
SELECT set_config(name, (%(idle_seconds)s::float8 * 1000)::bigint::text, false) AS value
  FROM unnest(ARRAY['idle_session_timeout', 'idle_in_transaction_session_timeout']) AS name
