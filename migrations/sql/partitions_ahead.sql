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
