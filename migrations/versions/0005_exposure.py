"""Companion tables of the exposure job, written in the sink's transaction."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE holdfast.exposure_window (
            stream         text        NOT NULL,
            merchant_id    text        NOT NULL,
            window_end     timestamptz NOT NULL,
            window_start   timestamptz NOT NULL,
            revision       integer     NOT NULL,
            exposure_minor bigint      NOT NULL,
            currency       text        NOT NULL,
            policy_version text        NOT NULL,
            written_at     timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_exposure_window PRIMARY KEY (stream, merchant_id, window_end),
            CONSTRAINT ck_exposure_window_order CHECK (window_start < window_end),
            CONSTRAINT ck_exposure_window_revision CHECK (revision >= 1)
        )
    """)
    op.execute("""
        CREATE TABLE holdfast.late_event (
            id           bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_late_event PRIMARY KEY,
            stream       text                 NOT NULL,
            reason       holdfast.late_reason NOT NULL,
            event_id     text                 NOT NULL,
            merchant_id  text                 NOT NULL,
            type         text                 NOT NULL,
            amount_minor bigint               NOT NULL,
            currency     text                 NOT NULL,
            occurred_at  timestamptz          NOT NULL,
            watermark    timestamptz,
            written_at   timestamptz          NOT NULL DEFAULT now()
        )
    """)
    op.execute("CREATE INDEX ix_late_event_merchant ON holdfast.late_event (merchant_id, id)")


def downgrade() -> None:
    op.execute("DROP TABLE holdfast.late_event")
    op.execute("DROP TABLE holdfast.exposure_window")
