"""The database schema: Alembic revisions, least-privilege roles, and the `holdfast db` commands."""
