-- Today by the database's clock (UTC), and the days of entry and attempt that are past their retention, oldest first.
-- Index: the catalogue's own.
SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today, old.parent, old.day
FROM (VALUES (1)) AS one
LEFT JOIN holdfast.days_older_than(%(days)s::integer) AS old ON true
