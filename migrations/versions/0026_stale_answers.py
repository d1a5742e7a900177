"""An index of deliveries that receivers answered `stale`, to report them.

They are rare, so it is small; for other attempts an insert only evaluates the predicate.
"""

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.execute("""
        CREATE INDEX IF NOT EXISTS ix_attempt_stale ON holdfast.attempt (finished_at, endpoint_id)
        WHERE receipt LIKE '%"outcome":"stale"%'
    """)


def downgrade() -> None:
    op.execute("DROP INDEX holdfast.ix_attempt_stale")
