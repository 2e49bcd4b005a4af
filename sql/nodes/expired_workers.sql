-- Workers whose lease has passed: their node is gone or cut off, or the clock was set.
-- in: max_rows int
-- out: one row: the clock that says so, seconds since the epoch, and boot_id and child of each, longest expired first
-- why: clock and verdict come from one reading, so a step of the clock cannot fall between the two
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
expired AS (
    SELECT w.boot_id, w.child, w.lease_expires_at FROM workers AS w, clock AS c
     WHERE w.lease_expires_at <= c.at
     ORDER BY w.lease_expires_at
     LIMIT %(max_rows)s::int)
SELECT (SELECT extract(epoch FROM at)::float8 FROM clock) AS clock_seconds,
       coalesce(array_agg(boot_id ORDER BY lease_expires_at, child), '{}')::uuid[] AS boot_ids,
       coalesce(array_agg(child ORDER BY lease_expires_at, child), '{}')::int[] AS children
  FROM expired
