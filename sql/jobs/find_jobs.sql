-- Jobs of a name, or whose ids lie in a range.
-- in: name text, first uuid or NULL (no range), last uuid or NULL
-- index: jobs_pkey for the range; none for the name: people ask it, now and then
-- out: id, name; a few of them, for more than one is a question back
SELECT id, name FROM jobs
 WHERE name = %(name)s::text OR id BETWEEN %(first)s::uuid AND %(last)s::uuid
 ORDER BY id
 LIMIT 10
