-- Workers whose lease has passed: their node is gone or cut off.
-- in: max_rows int
-- out: boot_id, child, longest expired first
SELECT boot_id, child FROM workers
 WHERE lease_expires_at <= clock_timestamp()
 ORDER BY lease_expires_at
 LIMIT %(max_rows)s::int
