-- Whether the version table is there; reads the catalogue, so it needs no right on the schema.
-- Index: the catalogue's own.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relname = 'alembic_version'
)
