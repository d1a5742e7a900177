"""Indexes for interactive reads: newest attempts, subjects by name, open rows, items, audit trail.

Attempts are inserted once and in order of time, at the right edge of a B-tree: about a microsecond
and 66 bytes of WAL each. A BRIN index is cheaper but not ordered, so reading the newest page would
scan a whole time range.
"""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.execute("""
        CREATE INDEX IF NOT EXISTS ix_attempt_finished_at ON holdfast.attempt (finished_at)
    """)
    # Failed attempts are rare, and they are what people search for.
    op.execute("""
        CREATE INDEX IF NOT EXISTS ix_attempt_undelivered
            ON holdfast.attempt (endpoint_id, outcome, finished_at) WHERE outcome <> 'delivered'
    """)
    # In the order of the bytes, so that names with one prefix stand together on every server.
    op.execute("""
        CREATE INDEX IF NOT EXISTS ix_subject_name ON holdfast.subject (name COLLATE "C")
    """)
    op.execute("""
        CREATE INDEX IF NOT EXISTS ix_quarantine_open
            ON holdfast.quarantine (id) WHERE resolution IS NULL
    """)
    op.execute("""
        CREATE INDEX IF NOT EXISTS ix_replay_item_place ON holdfast.replay_item (replay_id, place)
    """)
    op.execute("""
        CREATE INDEX IF NOT EXISTS ix_operator_action_target
            ON holdfast.operator_action (target, id)
    """)


def downgrade() -> None:
    op.execute("DROP INDEX holdfast.ix_operator_action_target")
    op.execute("DROP INDEX holdfast.ix_replay_item_place")
    op.execute("DROP INDEX holdfast.ix_quarantine_open")
    op.execute("DROP INDEX holdfast.ix_subject_name")
    op.execute("DROP INDEX holdfast.ix_attempt_undelivered")
    op.execute("DROP INDEX holdfast.ix_attempt_finished_at")
