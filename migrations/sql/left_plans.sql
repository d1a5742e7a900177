-- Returns the databases that plans of this user left behind: the session that created one has its number in the name.
-- Index: the catalogue's own.
SELECT d.datname::text
FROM pg_catalog.pg_database AS d
JOIN pg_catalog.pg_roles AS r ON r.oid = d.datdba AND r.rolname = current_user
WHERE d.datname ~ '^holdfast_plan_[0-9]+_[0-9a-f]{12}$'
    AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS a
        WHERE a.datid = d.oid OR a.pid::text = split_part(d.datname, '_', 3)
    )
