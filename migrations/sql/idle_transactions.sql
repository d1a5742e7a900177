-- Returns sessions of this database with idle open transactions, which hold locks and block vacuum.
-- Without pg_read_all_stats a user sees only its own sessions. Index: none.
SELECT pid, application_name, extract(epoch FROM clock_timestamp() - state_change)::bigint AS seconds
FROM pg_catalog.pg_stat_activity
WHERE datname = current_database()
    AND state LIKE 'idle in transaction%%'
    AND state_change < clock_timestamp() - make_interval(secs => %(seconds)s)
ORDER BY state_change
