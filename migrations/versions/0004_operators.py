"""The operators' tables: replay, replay_item, operator_action."""

from alembic import op

revision = "0004"
down_revision = "0003"

TABLES = ("operator_action", "replay_item", "replay")


def upgrade() -> None:
    op.execute("""
        CREATE TABLE holdfast.replay (
            id         uuid                  NOT NULL CONSTRAINT pk_replay PRIMARY KEY,
            verb       holdfast.replay_verb  NOT NULL,
            state      holdfast.replay_state NOT NULL DEFAULT 'planned',
            filter     jsonb                 NOT NULL,
            item_count bigint                NOT NULL,
            reason     text                  NOT NULL,
            actor      text                  NOT NULL,
            created_at timestamptz           NOT NULL DEFAULT now(),
            applied_at timestamptz,
            CONSTRAINT ck_replay_filter CHECK (filter <> '{}'::jsonb),
            CONSTRAINT ck_replay_reason CHECK (length(reason) BETWEEN 1 AND 2000),
            CONSTRAINT ck_replay_item_count CHECK (item_count >= 0)
        )
    """)
    op.execute("""
        CREATE TABLE holdfast.replay_item (
            replay_id   uuid        NOT NULL,
            endpoint_id integer     NOT NULL,
            subject_id  bigint      NOT NULL,
            sequence    bigint      NOT NULL,
            created_at  timestamptz NOT NULL,
            key         uuid        NOT NULL,
            new_key     uuid,
            outcome     holdfast.outcome,
            settled_at  timestamptz,
            CONSTRAINT pk_replay_item PRIMARY KEY (replay_id, endpoint_id, subject_id, sequence),
            CONSTRAINT fk_replay_item_replay
                FOREIGN KEY (replay_id) REFERENCES holdfast.replay (id),
            CONSTRAINT fk_replay_item_endpoint
                FOREIGN KEY (endpoint_id) REFERENCES holdfast.endpoint (id)
        )
    """)
    op.execute("""
        CREATE TABLE holdfast.operator_action (
            id       bigint GENERATED ALWAYS AS IDENTITY
                                 CONSTRAINT pk_operator_action PRIMARY KEY,
            acted_at timestamptz NOT NULL DEFAULT now(),
            actor    text        NOT NULL,
            action   text        NOT NULL,
            target   text        NOT NULL,
            reason   text        NOT NULL,
            detail   jsonb       NOT NULL DEFAULT '{}',
            CONSTRAINT ck_operator_action_reason CHECK (length(reason) BETWEEN 1 AND 2000)
        )
    """)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE holdfast.{table}")
