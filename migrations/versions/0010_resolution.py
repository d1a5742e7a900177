"""The resolution of a quarantined row: a person requeued it, or decided to leave it."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute("CREATE TYPE holdfast.quarantine_resolution AS ENUM ('requeued', 'dismissed')")
    # Nullable columns without a default: the table is not rewritten.
    op.execute("""
        ALTER TABLE holdfast.quarantine
            ADD COLUMN resolution  holdfast.quarantine_resolution,
            ADD COLUMN resolved_at timestamptz,
            ADD COLUMN resolved_by text,
            ADD CONSTRAINT ck_quarantine_resolution
                CHECK ((resolution IS NULL) = (resolved_at IS NULL))
    """)
    op.execute("""
        GRANT UPDATE (resolution, resolved_at, resolved_by)
        ON holdfast.quarantine TO holdfast_operator
    """)
    op.execute("""
        GRANT SELECT (resolution, resolved_at, resolved_by)
        ON holdfast.quarantine TO holdfast_reader
    """)


def downgrade() -> None:
    op.execute("""
        ALTER TABLE holdfast.quarantine
            DROP CONSTRAINT ck_quarantine_resolution,
            DROP COLUMN resolved_by,
            DROP COLUMN resolved_at,
            DROP COLUMN resolution
    """)
    op.execute("DROP TYPE holdfast.quarantine_resolution")
