-- Whether the schema exists. Reads the catalogue, because to_regclass fails for a schema on which the user has no right
-- before it sets its role. Index: pg_class_relname_nsp.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relname = 'alembic_version'
) AS installed
