-- Which time zone data the next ticks were computed with.
-- in: (nothing)
-- out: version, NULL before the first leader has recorded one; no row when there was never a leader
SELECT tz_version AS version FROM leader
