-- name: clock
-- The database's clock.
-- Needs no index.
SELECT clock_timestamp() AS at


-- name: connections
-- The sessions of this database by application and state.
-- Needs no index: a row per connection.
SELECT application_name AS application, coalesce(state, 'hidden') AS state, count(*) AS sessions
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT %(limit)s


-- name: days
-- The daily partitions of entry and attempt, the newest first: estimated rows and size.
-- Uses the catalogue's own indexes.
SELECT p.relname AS parent, to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
       greatest(s.n_live_tup, c.reltuples::bigint, 0) AS rows, pg_total_relation_size(c.oid) AS bytes
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_class p ON p.oid = i.inhparent
LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE p.oid IN ('holdfast.entry'::regclass, 'holdfast.attempt'::regclass)
  AND c.relkind = 'r' AND c.relname ~ ('^' || p.relname || '_[0-9]{8}$')
ORDER BY 2 DESC, 1
LIMIT %(limit)s


-- name: facts
-- The server's clock and version, the size of this database, the server's connection limit, the revision of the schema.
-- Needs no index.
SELECT clock_timestamp() AS at, current_database() AS name, current_setting('server_version') AS server_version,
       pg_database_size(current_database()) AS bytes, current_setting('max_connections')::integer AS connections_max,
       (SELECT version_num FROM holdfast.alembic_version) AS revision


-- name: snapshots
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


-- name: tables
-- The tables with updates in place, those with most dead rows first: live and dead rows, last VACUUM and ANALYZE.
-- Uses the catalogue's own indexes.
SELECT relname AS name, n_live_tup AS live_rows, n_dead_tup AS dead_rows, pg_total_relation_size(relid) AS bytes,
       greatest(last_vacuum, last_autovacuum) AS vacuumed_at, last_autovacuum AS autovacuumed_at,
       greatest(last_analyze, last_autoanalyze) AS analyzed_at
FROM pg_stat_user_tables
WHERE schemaname = 'holdfast'
  AND relname IN ('lane', 'endpoint_pace', 'endpoint', 'subject', 'transition', 'batch', 'stream', 'dead_letter', 'quarantine',
                  'replay', 'replay_item', 'dispatcher_instance')
ORDER BY n_dead_tup DESC, relname
