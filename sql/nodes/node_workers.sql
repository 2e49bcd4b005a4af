-- The registered workers of a node.
-- in: boot_id uuid
-- out: boot_id, child
SELECT boot_id, child FROM workers WHERE boot_id = %(boot_id)s::uuid ORDER BY child
