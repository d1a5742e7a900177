-- Whether the schema exists at all. From the catalogue, because to_regclass refuses to look into a
-- schema on which the user has no right before it takes on its role. Index: pg_class_relname_nsp.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relname = 'alembic_version'
) AS installed
