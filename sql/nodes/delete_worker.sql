-- Declare a worker dead: waits for its claim in flight, and stops every later one. recover_runs follows.
-- in: boot_id uuid, child int, only_expired bool (true: leave it when its lease was renewed meanwhile)
-- out: its worker_id; no row when there was none
-- locks: the workers row, until the end of the transaction
DELETE FROM workers
 WHERE boot_id = %(boot_id)s::uuid AND child = %(child)s::int
   AND (NOT %(only_expired)s::bool OR lease_expires_at <= clock_timestamp())
RETURNING worker_id
