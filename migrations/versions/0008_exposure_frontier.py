"""An index for the newest window of a stream, where a new checkpoint begins.

Every new checkpoint reads it, and in the primary key the merchant precedes the window.
"""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    # Where the table is large already, an administrator builds it before, CONCURRENTLY.
    op.execute("""
        CREATE INDEX IF NOT EXISTS ix_exposure_window_end
        ON holdfast.exposure_window (stream, window_end)
    """)


def downgrade() -> None:
    op.execute("DROP INDEX holdfast.ix_exposure_window_end")
