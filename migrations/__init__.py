"""The database schema: alembic revisions, least-privilege roles, `holdfast db upgrade|doctor`."""
