-- Returns what keeps VACUUM from freezing rows that are older than it, the oldest first. A standby's snapshot is that of its
-- session here. Without pg_read_all_stats a user sees only its own sessions. Index: none.
SELECT kind, name, age
FROM (
    SELECT 'session' AS kind, pid::text AS name, greatest(age(backend_xid), age(backend_xmin)) AS age
    FROM pg_catalog.pg_stat_activity
    WHERE pid <> pg_backend_pid()
    UNION ALL
    SELECT 'prepared', gid, age(transaction) FROM pg_catalog.pg_prepared_xacts
    UNION ALL
    SELECT 'slot', slot_name::text, greatest(age(xmin), age(catalog_xmin)) FROM pg_catalog.pg_replication_slots
) AS holder
WHERE age >= %(age)s
ORDER BY age DESC, kind, name
LIMIT 3
