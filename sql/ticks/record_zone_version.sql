-- Say which time zone data the next ticks are computed with.
-- in: version text, term bigint (the leader's own)
-- out: nothing
-- why: the term, so that a leader which was followed by another one says nothing about the other's ticks
UPDATE leader SET tz_version = %(version)s::text WHERE term = %(term)s::bigint
