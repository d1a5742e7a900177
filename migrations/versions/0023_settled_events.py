"""Events of settled windows are stored as rows.

A checkpoint that takes over a stream skips events of windows published before it; until now they
were only counted.
"""

from alembic import op

revision = "0023"
down_revision = "0022"

_BEFORE = "'late', 'future_dated', 'duplicate'"


def upgrade() -> None:
    op.execute("ALTER TYPE holdfast.late_reason ADD VALUE IF NOT EXISTS 'settled'")


def downgrade() -> None:
    # The version before calls an event of such a window late once its cutoff has passed.
    op.execute("ALTER TYPE holdfast.late_reason RENAME TO late_reason_with_settled")
    op.execute(f"CREATE TYPE holdfast.late_reason AS ENUM ({_BEFORE})")
    op.execute("""
        ALTER TABLE holdfast.late_event ALTER COLUMN reason TYPE holdfast.late_reason
        USING (CASE reason::text WHEN 'settled' THEN 'late' ELSE reason::text END)
            ::holdfast.late_reason
    """)
    op.execute("DROP TYPE holdfast.late_reason_with_settled")
