"""The content of a diverged replay, kept so that a person can compare it with what was written."""

from alembic import op

revision = "0009"
down_revision = "0008"

GRANTS = (
    "SELECT, INSERT ON holdfast.divergence TO holdfast_sink",
    "INSERT ON holdfast.divergence_row TO holdfast_sink",
    "SELECT ON holdfast.divergence, holdfast.divergence_row TO holdfast_operator",
    # reader: everything but what a body may hold
    "SELECT ON holdfast.divergence TO holdfast_reader",
    (
        "SELECT (divergence_id, key, side, subject, type, occurred_at)"
        " ON holdfast.divergence_row TO holdfast_reader"
    ),
)


def upgrade() -> None:
    op.execute("""
        CREATE TYPE holdfast.divergence_side
        AS ENUM ('only_in_ledger', 'only_in_replay', 'changed')
    """)
    op.execute("""
        CREATE TABLE holdfast.divergence (
            id                bigint GENERATED ALWAYS AS IDENTITY
                                          CONSTRAINT pk_divergence PRIMARY KEY,
            batch_no          bigint      NOT NULL,
            digest            bytea       NOT NULL,
            run_id            uuid        NOT NULL,
            row_count         bigint      NOT NULL,
            quarantined_count bigint      NOT NULL,
            differing_count   bigint      NOT NULL,
            found_at          timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT uq_divergence_batch_no UNIQUE (batch_no, digest),
            CONSTRAINT ck_divergence_digest CHECK (octet_length(digest) = 32)
        )
    """)
    # Of a key that only the ledger has, the replay knows nothing else.
    op.execute("""
        CREATE TABLE holdfast.divergence_row (
            divergence_id bigint                   NOT NULL,
            key           uuid                     NOT NULL,
            side          holdfast.divergence_side NOT NULL,
            subject       text,
            type          text,
            occurred_at   timestamptz,
            body          text,
            CONSTRAINT pk_divergence_row PRIMARY KEY (divergence_id, key),
            CONSTRAINT fk_divergence_row_divergence
                FOREIGN KEY (divergence_id) REFERENCES holdfast.divergence (id)
        )
    """)
    for grant in GRANTS:
        op.execute(f"GRANT {grant}")


def downgrade() -> None:
    op.execute("DROP TABLE holdfast.divergence_row")
    op.execute("DROP TABLE holdfast.divergence")
    op.execute("DROP TYPE holdfast.divergence_side")
