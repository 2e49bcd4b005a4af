-- The leases of the nodes with that name, or on that host.
-- in: worker_id text or NULL (any), hostname text or NULL (any)
-- out: each with the seconds that its lease has left, below 0 once it has passed; the longest first
SELECT worker_id, hostname, pid, extract(epoch FROM lease_expires_at - clock_timestamp())::float8 AS lease_seconds
  FROM nodes
 WHERE (%(worker_id)s::text IS NULL OR worker_id = %(worker_id)s::text)
   AND (%(hostname)s::text IS NULL OR hostname = %(hostname)s::text)
 ORDER BY lease_expires_at DESC
