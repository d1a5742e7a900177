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
