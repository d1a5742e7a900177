-- The schema revision of the database.
-- Needs no index: one row.
SELECT version_num AS revision FROM holdfast.alembic_version
