-- End the leases of a node that has been silent for as long as they were given; recovery of its workers follows.
-- why: its last heartbeat is moved with the lease, or the node would still be one that beats in the future
-- in: boot_id uuid, heartbeat_at timestamptz (the last one that was seen)
-- out: worker_id; no row when it has beaten since
-- locks: the node's row before its workers', as a beat does: one that commits meanwhile changes heartbeat_at, and keeps all
WITH silent AS MATERIALIZED (
    SELECT boot_id, worker_id FROM nodes
     WHERE boot_id = %(boot_id)s::uuid AND heartbeat_at = %(heartbeat_at)s::timestamptz
       FOR UPDATE),
ended AS (
    UPDATE workers AS w SET lease_expires_at = clock_timestamp()
      FROM silent AS s WHERE w.boot_id = s.boot_id)
UPDATE nodes AS n
   SET lease_expires_at = clock_timestamp(), heartbeat_at = clock_timestamp() - (n.lease_expires_at - n.heartbeat_at)
  FROM silent AS s WHERE n.boot_id = s.boot_id
RETURNING n.worker_id
