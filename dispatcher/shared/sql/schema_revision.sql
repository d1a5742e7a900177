-- The revision that the database was upgraded to.
-- Needs no index: one row.
SELECT version_num AS revision FROM holdfast.alembic_version
