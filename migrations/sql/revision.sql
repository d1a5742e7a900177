-- Returns the revision of the database; no row before the first upgrade or after a downgrade to base.
-- Index: none; the table has one row.
SELECT version_num FROM holdfast.alembic_version
