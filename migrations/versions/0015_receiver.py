"""The key window and the inquiry URL of a receiver.

A key that the receiver may have deleted is not sent again without a person's confirmation.
"""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    # Constant defaults and nullable columns: no table is rewritten.
    op.execute("""
        ALTER TABLE holdfast.endpoint
            ADD COLUMN inquiry_path text,
            ADD CONSTRAINT ck_endpoint_inquiry_path
                CHECK (inquiry_path ~ '^/[!-~]*$' AND length(inquiry_path) <= 1024)
    """)
    op.execute("""
        ALTER TABLE holdfast.endpoint_pace
            ADD COLUMN key_window_seconds bigint,
            ADD COLUMN key_window_seen_at timestamptz,
            ADD CONSTRAINT ck_endpoint_pace_key_window
                CHECK (key_window_seconds >= 0 AND key_window_seen_at IS NOT NULL
                       OR key_window_seconds IS NULL)
    """)
    op.execute("""
        ALTER TABLE holdfast.dead_letter
            ADD COLUMN window_waived boolean NOT NULL DEFAULT false
    """)
    op.execute("""
        CREATE INDEX ix_dead_letter_waived
            ON holdfast.dead_letter (endpoint_id, subject_id, sequence) WHERE window_waived
    """)
    op.execute("GRANT UPDATE (window_waived) ON holdfast.dead_letter TO holdfast_operator")


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.dead_letter DROP COLUMN window_waived")
    op.execute("""
        ALTER TABLE holdfast.endpoint_pace
            DROP COLUMN key_window_seen_at,
            DROP COLUMN key_window_seconds
    """)
    op.execute("ALTER TABLE holdfast.endpoint DROP COLUMN inquiry_path")
