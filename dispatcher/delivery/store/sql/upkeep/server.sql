-- The server's own state: the oldest snapshot by its holder and the age of the server's oldest row version, in transactions;
-- size and connections. Every login may read these columns of other sessions; their times and queries only with pg_read_all_stats. A
-- VACUUM holds nothing back. Needs no index: a row per connection; the size reads the directory entries of the database's files.
WITH held AS (
    SELECT CASE
               WHEN datid IS NULL THEN 'replication'
               WHEN starts_with(application_name, 'holdfast') THEN 'holdfast'
               ELSE 'other'
           END AS holder,
           greatest(age(backend_xid), age(backend_xmin)) AS transactions
    FROM pg_stat_activity
    WHERE usesysid IS NOT NULL AND pid <> pg_backend_pid()
      AND (datid IS NULL OR datname = current_database())
      AND pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v)
    UNION ALL
    SELECT 'replication', age(xmin) FROM pg_replication_slots
    UNION ALL
    SELECT 'prepared', age(transaction) FROM pg_prepared_xacts WHERE database = current_database()
)
SELECT (
           SELECT jsonb_object_agg(every.holder, coalesce(oldest.transactions, 0))
           FROM unnest(ARRAY['holdfast', 'other', 'prepared', 'replication']) AS every (holder)
           LEFT JOIN (SELECT holder, max(transactions) AS transactions FROM held GROUP BY 1) oldest
             ON oldest.holder = every.holder
       ) AS snapshot_ages,
       jsonb_build_object(
           'transaction', (SELECT max(age(datfrozenxid)) FROM pg_database),
           'multixact', (SELECT max(mxid_age(datminmxid)) FROM pg_database)
       ) AS frozen_ages,
       jsonb_build_object(
           'transaction', current_setting('autovacuum_freeze_max_age')::bigint,
           'multixact', current_setting('autovacuum_multixact_freeze_max_age')::bigint
       ) AS frozen_ages_max,
       CASE WHEN has_database_privilege(d.oid, 'CONNECT') THEN pg_database_size(d.oid) END AS size_bytes,
       (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL) AS connections,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true)::integer, 0) AS connections_max
FROM pg_database d
WHERE d.datname = current_database()
