-- Returns the name and the definition of each index of the schema that is neither a constraint's nor a partition's.
-- Index: the catalogue's own.
SELECT c.relname::text, pg_get_indexdef(c.oid)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'holdfast'
WHERE c.relkind IN ('i', 'I') AND NOT c.relispartition
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS k WHERE k.conindid = c.oid)
