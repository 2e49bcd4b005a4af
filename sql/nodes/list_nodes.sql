-- The fleet, by name.
-- in: (nothing)
-- out: each node with its living workers, how many of them run something, and whether it leads
SELECT n.boot_id, n.worker_id, n.hostname, n.pid, n.roles, n.concurrency, n.version, n.started_at, n.heartbeat_at,
       n.lease_expires_at > clock_timestamp() AS is_alive,
       (SELECT count(*) FROM workers AS w WHERE w.boot_id = n.boot_id) AS workers,
       (SELECT count(*) FROM queue AS q WHERE q.boot_id = n.boot_id) AS running,
       n.lease_expires_at > clock_timestamp()
         AND EXISTS (SELECT FROM leader AS l WHERE l.boot_id = n.boot_id) AS is_leader
  FROM nodes AS n
 ORDER BY n.worker_id, n.started_at
