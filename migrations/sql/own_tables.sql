-- Returns the tables of the schema, with partitions.
-- Index: the catalogue's own.
SELECT c.oid
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'holdfast'
WHERE c.relkind IN ('r', 'p')
