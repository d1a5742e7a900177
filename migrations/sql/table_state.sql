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
