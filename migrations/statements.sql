-- name: audit_downgrade
-- Records a downgrade, in its transaction. Every expand revision has this table below it.
-- Needs no index.
INSERT INTO holdfast.operator_action (actor, action, target, reason, detail)
VALUES (%(actor)s, 'db.downgrade', %(target)s, %(reason)s, %(detail)s::jsonb)


-- name: clock
-- Returns the database's clock, which decides when a lane is due and when a lease expires.
-- Index: none.
SELECT clock_timestamp()


-- name: code_sessions
-- Returns the processes that ran within a day by the database's clock, with the range of their code. A sink is as recent
-- as its newest batch, and runs now while a session has its name; everybody may read these names. A dispatcher is as recent
-- as its heartbeat. Uses pk_batch, pk_code_session; a handful of rows.
SELECT kind, name, revision, works_from, seen_at
FROM (
    SELECT 'sink' AS kind, s.name, c.revision, c.works_from,
           CASE WHEN EXISTS (
               SELECT FROM pg_stat_activity AS a
               WHERE a.datname = current_database()
                 AND a.application_name = left('holdfast sink ' || s.name, 63)
           ) THEN clock_timestamp()
           ELSE greatest(s.started_at, c.seen_at, newest.written_at) END AS seen_at
    FROM holdfast.stream AS s
    LEFT JOIN holdfast.code_session AS c ON c.kind = 'sink' AND c.name = s.name
    LEFT JOIN LATERAL (
        SELECT b.written_at FROM holdfast.batch AS b
        WHERE b.stream = s.name AND b.query_id = s.query_id
        ORDER BY b.batch_id DESC LIMIT 1
    ) AS newest ON true
    UNION ALL
    SELECT 'dispatcher', d.host || ' pid ' || d.pid, c.revision, c.works_from, d.heartbeat_at
    FROM holdfast.dispatcher_instance AS d
    LEFT JOIN holdfast.code_session AS c ON c.kind = 'dispatcher' AND c.name = d.id::text
    UNION ALL
    SELECT c.kind, c.name, c.revision, c.works_from, c.seen_at
    FROM holdfast.code_session AS c WHERE c.kind = 'api'
) AS process
WHERE seen_at > clock_timestamp() - interval '1 day'
ORDER BY seen_at DESC


-- name: days_older_than
-- Returns the days of entry and attempt that are old enough to drop, entries first, oldest first.
-- Index: the catalogue's own.
SELECT parent, day FROM holdfast.days_older_than(%(days)s)


-- name: ensure_partitions
-- Creates missing partitions of the coming days; a database without a running service gets them
-- from its next upgrade. Index: the catalogue's own.
SELECT holdfast.ensure_partitions()


-- name: forget_sessions
-- Deletes the records of dispatchers that are gone, and of API servers that were not seen for a month.
-- Index: none; a row per process that was ever started since the last upgrade.
DELETE FROM holdfast.code_session AS c
WHERE c.kind = 'dispatcher' AND NOT EXISTS (
        SELECT FROM holdfast.dispatcher_instance AS d WHERE d.id::text = c.name
    )
    OR c.kind = 'api' AND c.seen_at < clock_timestamp() - interval '30 days'


-- name: horizon
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


-- name: idle_transactions
-- Returns sessions of this database with idle open transactions, which hold locks and block vacuum.
-- Without pg_read_all_stats a user sees only its own sessions. Index: none.
SELECT pid, application_name, extract(epoch FROM clock_timestamp() - state_change)::bigint AS seconds
FROM pg_catalog.pg_stat_activity
WHERE datname = current_database()
    AND state LIKE 'idle in transaction%%'
    AND state_change < clock_timestamp() - make_interval(secs => %(seconds)s)
ORDER BY state_change


-- name: index_definitions
-- Returns the name and the definition of each index of the schema that is neither a constraint's nor a partition's.
-- Index: the catalogue's own.
SELECT c.relname::text, pg_get_indexdef(c.oid)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'holdfast'
WHERE c.relkind IN ('i', 'I') AND NOT c.relispartition
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS k WHERE k.conindid = c.oid)


-- name: installed
-- Returns whether the version table exists, from the catalogue, so no privilege on the schema is needed.
-- Index: the catalogue's own.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relname = 'alembic_version'
)


-- name: left_plans
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


-- name: lock
-- Serializes upgrades of this database: a second one waits here until the first has committed.
-- Index: none; the advisory lock is released with the transaction.
SELECT pg_advisory_xact_lock(hashtext('holdfast.migrations'))


-- name: lock_holders
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


-- name: memberships
-- Returns the existing Holdfast roles, and whether the current user can SET ROLE to each.
-- Index: the catalogue's own (pg_authid_rolname_index).
SELECT rolname, pg_has_role(current_user, oid, %(privilege)s)
FROM pg_catalog.pg_roles
WHERE rolname = ANY (%(roles)s)


-- name: partitions_ahead
-- Returns, for each partitioned table, how many whole days after today have partitions without a gap:
-- 0 = only today, -1 = not even today. Index: the catalogue's own.
SELECT parent, min(ahead) - 1 AS days
FROM (
    SELECT c.relname AS parent
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relkind = 'p'
) AS parents
CROSS JOIN generate_series(0, 400) AS ahead
WHERE NOT EXISTS (
    SELECT
    FROM pg_catalog.pg_inherits i
    JOIN pg_catalog.pg_class child ON child.oid = i.inhrelid
    JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
    JOIN pg_catalog.pg_namespace n ON n.oid = p.relnamespace
    WHERE n.nspname = 'holdfast' AND p.relname = parent
        AND child.relname = parent || '_'
            || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + ahead, 'YYYYMMDD')
)
GROUP BY parent
ORDER BY parent


-- name: prune_day
-- Drops a day, unless something in it is undelivered, in a separate transaction. Reads the whole day
-- by pk_lane and uq_batch_batch_no; the other rows by ix_batch_unrouted and uq_dead_letter_open.
SELECT outcome, row_count, bytes, waiting, unrouted, dead_letters, abandoned, endpoints
FROM holdfast.prune_day(
    %(parent)s, %(day)s, %(days)s, %(dry_run)s, %(actor)s, %(reason)s
)


-- name: role_there
-- Returns whether a role exists.
-- Index: the catalogue's own (pg_authid_rolname_index).
SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = %(role)s


-- name: settings
-- Returns the session's settings that decide whether an acknowledged commit survives a crash.
-- Index: none.
SELECT
    current_setting('server_version_num')::integer AS version,
    pg_is_in_recovery() AS standby,
    current_setting('transaction_read_only') = 'on' AS read_only,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    pg_encoding_to_char(encoding) AS encoding
FROM pg_catalog.pg_database
WHERE datname = current_database()


-- name: table_sizes
-- Returns each table and partition of the schema with its rows (negative before the first ANALYZE), its bytes without
-- and with indexes, and of a partition the parent and the bounds. Index: the catalogue's own.
SELECT c.relname::text, c.reltuples::bigint, pg_table_size(c.oid), pg_total_relation_size(c.oid),
    p.relname::text AS parent, pg_get_expr(c.relpartbound, c.oid) AS bounds
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'holdfast'
LEFT JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = c.oid
LEFT JOIN pg_catalog.pg_class AS p ON p.oid = i.inhparent
WHERE c.relkind IN ('r', 'p')
ORDER BY c.relname


-- name: table_state
-- Returns each table of the schema with what a statement changes if it reads or rewrites the table: its file, its
-- scans in this transaction and the files of its indexes; then its locks, those of readers and writers of rows left out.
-- Index: the catalogue's own.
SELECT c.oid, c.relname::text, c.relfilenode,
    coalesce(s.seq_scan, 0) + coalesce(s.idx_scan, 0) AS scans,
    ARRAY(
        SELECT x.relfilenode FROM pg_catalog.pg_index AS i
        JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid
    ) AS indexes,
    ARRAY(
        SELECT l.mode FROM pg_catalog.pg_locks AS l
        WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted AND l.relation = c.oid
            AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
        ORDER BY l.mode
    ) AS locks
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'holdfast'
LEFT JOIN pg_catalog.pg_stat_xact_all_tables AS s ON s.relid = c.oid
WHERE c.relkind IN ('r', 'p')


-- name: transaction_ids
-- Returns the database of this server whose oldest rows are the oldest, in transactions: IDs are given out until it is vacuumed.
-- Index: none.
SELECT datname AS database, age(datfrozenxid) AS age, current_setting('autovacuum_freeze_max_age')::integer AS freeze_at
FROM pg_catalog.pg_database
ORDER BY age DESC, datname
LIMIT 1


-- name: whoami
-- Returns the names of the current user and database, quoted as SQL identifiers.
-- Index: none.
SELECT quote_ident(current_user::text), quote_ident(current_database()::text)
