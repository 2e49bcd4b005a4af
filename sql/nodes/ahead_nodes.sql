-- Nodes that have not beaten since the clock was set back: their leases look longer than they are.
-- in: (nothing)
-- out: boot_id, heartbeat_at (in the future), lease_seconds as it was given at that heartbeat
SELECT boot_id, heartbeat_at, extract(epoch FROM lease_expires_at - heartbeat_at)::float8 AS lease_seconds
  FROM nodes
 WHERE heartbeat_at > clock_timestamp()
