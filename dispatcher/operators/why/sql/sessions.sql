-- Sessions of this database in a transaction, or waiting for a lock: what blocks them, what they hold.
-- Needs no index: a row per connection.
SELECT pid, application_name, state, backend_xid::text AS backend_xid, backend_xmin IS NOT NULL AS snapshot,
       extract(epoch FROM clock_timestamp() - xact_start)::double precision AS transaction_seconds,
       CASE WHEN wait_event_type = 'Lock' THEN pg_blocking_pids(pid) ELSE '{}' END AS blocked_by,
       left(query, 200) AS query
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND (xact_start IS NOT NULL OR backend_xid IS NOT NULL)
ORDER BY xact_start
LIMIT 1000
