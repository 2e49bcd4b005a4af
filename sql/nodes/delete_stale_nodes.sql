-- Forget nodes whose lease has passed and that have no worker left to recover.
-- in: (nothing)
-- out: worker_id of each
DELETE FROM nodes AS n
 WHERE n.lease_expires_at <= clock_timestamp()
   AND NOT EXISTS (SELECT FROM workers AS w WHERE w.boot_id = n.boot_id)
RETURNING n.worker_id
