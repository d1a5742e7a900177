-- Returns the three sessions that have held a lock on a table of the schema longest. Without pg_read_all_stats the age of
-- other users' transactions is NULL. Index: none.
SELECT a.pid, a.application_name,
       max(extract(epoch FROM clock_timestamp() - a.xact_start))::bigint AS seconds
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'holdfast'
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.granted AND a.datname = current_database() AND a.pid <> pg_backend_pid()
GROUP BY a.pid, a.application_name
ORDER BY seconds DESC NULLS LAST
LIMIT 3
