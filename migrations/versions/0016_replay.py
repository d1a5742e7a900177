"""Replays: planned, applied at a limited rate after live traffic, and cancelled.

A plan's items are written with it. A dispatcher settles each item by its kind: it resumes a stopped
lane, advances a retry, or sends an entry again under the item's own lease.
"""

from alembic import op

revision = "0016"
down_revision = "0015"

KINDS = "release hasten resend nothing reissue"


def upgrade() -> None:
    labels = ", ".join(f"'{kind}'" for kind in KINDS.split())
    op.execute(f"CREATE TYPE holdfast.replay_kind AS ENUM ({labels})")
    op.execute("""
        ALTER TABLE holdfast.replay
            ADD COLUMN rate_per_second integer,
            ADD COLUMN counts          jsonb   NOT NULL DEFAULT '{}',
            ADD COLUMN plan_sha256     bytea,
            ADD COLUMN outside_window  boolean NOT NULL DEFAULT false,
            ADD COLUMN approved_by     text,
            ADD COLUMN approved_at     timestamptz,
            ADD COLUMN cancelled_by    text,
            ADD COLUMN cancelled_at    timestamptz,
            ADD COLUMN finished_at     timestamptz,
            ADD COLUMN item_limit      bigint,
            ADD COLUMN paid_until      timestamptz,
            ADD CONSTRAINT ck_replay_rate_per_second CHECK (rate_per_second >= 1),
            ADD CONSTRAINT ck_replay_plan_sha256 CHECK (octet_length(plan_sha256) = 32)
    """)
    # Nothing has written items before this revision, so the columns need no default.
    op.execute("""
        ALTER TABLE holdfast.replay_item
            ADD COLUMN kind        holdfast.replay_kind NOT NULL,
            ADD COLUMN place       bigint               NOT NULL,
            ADD COLUMN attempt     integer              NOT NULL DEFAULT 0,
            ADD COLUMN due_at      timestamptz,
            ADD COLUMN token       uuid,
            ADD COLUMN lease_until timestamptz,
            ADD COLUMN detail      text,
            ADD CONSTRAINT ck_replay_item_attempt CHECK (attempt >= 0),
            ADD CONSTRAINT ck_replay_item_lease
                CHECK ((token IS NULL) = (lease_until IS NULL)),
            ADD CONSTRAINT ck_replay_item_settled
                CHECK (settled_at IS NULL OR token IS NULL)
    """)
    # Items are settled soon after they were added; what is dead in the indexes is walked over.
    op.execute("""
        ALTER TABLE holdfast.replay_item SET (
            fillfactor = 80,
            autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_vacuum_cost_delay = 0
        )
    """)
    op.execute("""
        CREATE INDEX ix_replay_applying ON holdfast.replay (created_at) WHERE state = 'applying'
    """)
    op.execute("""
        CREATE INDEX ix_replay_item_due ON holdfast.replay_item (replay_id, endpoint_id, place)
            WHERE settled_at IS NULL AND token IS NULL
    """)
    op.execute("""
        CREATE INDEX ix_replay_item_leased ON holdfast.replay_item (lease_until)
            WHERE token IS NOT NULL
    """)
    op.execute("""
        CREATE INDEX ix_replay_item_open
            ON holdfast.replay_item (endpoint_id, subject_id, sequence)
            WHERE settled_at IS NULL
    """)
    op.execute("GRANT UPDATE (paid_until, finished_at) ON holdfast.replay TO holdfast_dispatcher")
    op.execute("""
        GRANT UPDATE (attempt, due_at, token, lease_until, detail)
            ON holdfast.replay_item TO holdfast_dispatcher
    """)
    op.execute("""
        GRANT UPDATE (resolution, resolved_at, resolved_by, window_waived)
            ON holdfast.dead_letter TO holdfast_dispatcher
    """)


def downgrade() -> None:
    op.execute("""
        REVOKE UPDATE (resolution, resolved_at, resolved_by, window_waived)
            ON holdfast.dead_letter FROM holdfast_dispatcher
    """)
    op.execute("DROP INDEX holdfast.ix_replay_item_open")
    op.execute("DROP INDEX holdfast.ix_replay_applying")
    op.execute("""
        ALTER TABLE holdfast.replay_item
            RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay)
    """)
    op.execute("""
        ALTER TABLE holdfast.replay_item
            DROP COLUMN detail,
            DROP COLUMN lease_until,
            DROP COLUMN token,
            DROP COLUMN due_at,
            DROP COLUMN attempt,
            DROP COLUMN place,
            DROP COLUMN kind
    """)
    op.execute("""
        ALTER TABLE holdfast.replay
            DROP COLUMN paid_until,
            DROP COLUMN item_limit,
            DROP COLUMN finished_at,
            DROP COLUMN cancelled_at,
            DROP COLUMN cancelled_by,
            DROP COLUMN approved_at,
            DROP COLUMN approved_by,
            DROP COLUMN outside_window,
            DROP COLUMN plan_sha256,
            DROP COLUMN counts,
            DROP COLUMN rate_per_second
    """)
    op.execute("DROP TYPE holdfast.replay_kind")
