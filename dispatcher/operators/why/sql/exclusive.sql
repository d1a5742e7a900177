-- Sessions with an exclusive lock on one of our tables, the oldest transaction first.
-- Needs no index: a row per lock.
SELECT DISTINCT a.pid, a.application_name, a.state, a.backend_xid::text AS backend_xid, a.backend_xmin IS NOT NULL AS snapshot,
       extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS transaction_seconds,
       '{}'::integer[] AS blocked_by, left(a.query, 200) AS query
FROM pg_locks k
JOIN pg_class c ON c.oid = k.relation
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_stat_activity a ON a.pid = k.pid
WHERE n.nspname = 'holdfast' AND k.granted AND k.mode = 'AccessExclusiveLock'
  AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND a.pid <> pg_backend_pid()
ORDER BY transaction_seconds DESC
