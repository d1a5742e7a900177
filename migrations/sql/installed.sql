-- Returns whether the version table exists, from the catalogue, so no privilege on the schema is needed.
-- Index: the catalogue's own.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relname = 'alembic_version'
)
