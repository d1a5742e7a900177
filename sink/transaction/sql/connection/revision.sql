-- The schema revision of the database: one row.
-- No index.
SELECT version_num AS revision FROM holdfast.alembic_version
