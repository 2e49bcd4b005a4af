-- Forget a node that stops; its workers were recovered before.
-- in: boot_id uuid
-- out: nothing
DELETE FROM nodes WHERE boot_id = %(boot_id)s::uuid
