-- Returns the tables that existed before and that this transaction has locked more strongly than a reader or writer of
-- rows does, with the mode. Index: the catalogue's own.
SELECT c.relname::text, l.mode, pg_total_relation_size(c.oid) AS bytes
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted
    AND c.oid = ANY (%(tables)s)
    AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
ORDER BY c.relname, l.mode
