-- What keeps VACUUM from removing dead rows, the oldest first: transactions that hold a snapshot, and prepared transactions.
-- Needs no index: a row per connection.
SELECT kind, pid, application, state, age_seconds, query
FROM (
    SELECT 'session' AS kind, pid, application_name AS application, state,
           extract(epoch FROM clock_timestamp() - xact_start)::double precision AS age_seconds, left(query, 200) AS query
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND backend_xmin IS NOT NULL AND xact_start IS NOT NULL
    UNION ALL
    SELECT 'prepared', NULL, gid, 'prepared',
           extract(epoch FROM clock_timestamp() - prepared)::double precision, ''
    FROM pg_prepared_xacts
    WHERE database = current_database()
) held
ORDER BY age_seconds DESC
LIMIT %(limit)s
