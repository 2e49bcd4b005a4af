-- Other nodes that have the name of this one.
-- in: worker_id text, boot_id uuid
-- out: each with its host and machine, master's pid, last heartbeat and whether its lease is valid
SELECT boot_id, hostname, machine, pid, heartbeat_at, lease_expires_at > clock_timestamp() AS is_alive
  FROM nodes
 WHERE worker_id = %(worker_id)s::text AND boot_id <> %(boot_id)s::uuid
