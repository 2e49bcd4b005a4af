-- How the server keeps a commit, what connections are left, and who holds a transaction open for long.
-- in: (nothing)
-- out: one row: version_number; fsync and synchronous_commit; the connections left of what ordinary roles have of the
-- out: server, of the database's limit and of the role's, NULL where there is none; of the oldest transaction that this
-- out: role may see its age in seconds, process (NULL: prepared) and application; the number of others it may not see
-- why: numbackends, and sums over it: the rows of other roles in pg_stat_activity do not tell what kind of process
-- why: they are, nor since when their transaction is open
WITH transactions AS (
    SELECT pid, application_name, xact_start AS began_at FROM pg_stat_activity
     WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND xact_start IS NOT NULL
     UNION ALL
    SELECT NULL, 'prepared transaction ' || gid, prepared FROM pg_prepared_xacts),
oldest AS (
    SELECT pid, application_name, extract(epoch FROM clock_timestamp() - began_at)::float8 AS seconds
      FROM transactions ORDER BY began_at LIMIT 1)
SELECT current_setting('server_version_num')::int AS version_number,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true)::int, 0)
         - (SELECT sum(numbackends) FROM pg_stat_database))::int AS server_left,
       CASE WHEN d.datconnlimit >= 0 AND NOT r.rolsuper THEN
           d.datconnlimit - (SELECT s.numbackends FROM pg_stat_database AS s WHERE s.datid = d.oid)
       END AS database_left,
       CASE WHEN r.rolconnlimit >= 0 AND NOT r.rolsuper THEN
           r.rolconnlimit - (SELECT count(*) FROM pg_stat_activity AS a
                              WHERE a.usesysid = r.oid AND a.backend_type = 'client backend')::int
       END AS role_left,
       (SELECT seconds FROM oldest) AS oldest_seconds,
       (SELECT pid FROM oldest) AS oldest_pid,
       (SELECT application_name FROM oldest) AS oldest_application,
       (SELECT count(*) FROM pg_stat_activity AS a
         WHERE a.backend_type IS NULL AND a.datid IS NOT NULL
           AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL))::int AS hidden_transactions
  FROM pg_database AS d, pg_roles AS r
 WHERE d.datname = current_database() AND r.rolname = session_user
