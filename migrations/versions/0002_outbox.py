"""The sink's tables: stream, batch, entry_key, subject, entry, quarantine."""

from alembic import op

revision = "0002"
down_revision = "0001"

TABLES = ("quarantine", "entry", "entry_key", "subject", "batch", "stream")


def upgrade() -> None:
    op.execute("""
        CREATE TABLE holdfast.stream (
            name        text        NOT NULL CONSTRAINT pk_stream PRIMARY KEY,
            query_id    uuid,
            epoch       bigint      NOT NULL DEFAULT 0,
            run_id      uuid,
            checkpoint  text,
            created_at  timestamptz NOT NULL DEFAULT now(),
            adopted_at  timestamptz,
            started_at  timestamptz,
            CONSTRAINT ck_stream_name CHECK (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
            CONSTRAINT ck_stream_epoch CHECK (epoch >= 0)
        )
    """)
    op.execute("""
        CREATE TABLE holdfast.batch (
            stream            text        NOT NULL,
            query_id          uuid        NOT NULL,
            batch_id          bigint      NOT NULL,
            batch_no          bigint      GENERATED ALWAYS AS IDENTITY
                                          CONSTRAINT uq_batch_batch_no UNIQUE,
            run_id            uuid        NOT NULL,
            epoch             bigint      NOT NULL,
            row_count         bigint      NOT NULL,
            entry_count       bigint      NOT NULL,
            duplicate_count   bigint      NOT NULL,
            differing_count   bigint      NOT NULL,
            suppressed_count  bigint      NOT NULL,
            quarantined_count bigint      NOT NULL,
            digest            bytea       NOT NULL,
            source_offsets    text,
            written_at        timestamptz NOT NULL,
            routed_at         timestamptz,
            CONSTRAINT pk_batch PRIMARY KEY (stream, query_id, batch_id),
            CONSTRAINT fk_batch_stream FOREIGN KEY (stream) REFERENCES holdfast.stream (name),
            CONSTRAINT ck_batch_batch_id CHECK (batch_id >= 0),
            CONSTRAINT ck_batch_counts CHECK (
                row_count = entry_count + duplicate_count + suppressed_count + quarantined_count
                AND least(entry_count, duplicate_count, suppressed_count, quarantined_count) >= 0
                AND differing_count BETWEEN 0 AND duplicate_count
            ),
            CONSTRAINT ck_batch_digest CHECK (octet_length(digest) = 32)
        )
    """)
    op.execute("""
        CREATE INDEX ix_batch_unrouted ON holdfast.batch (batch_no) WHERE routed_at IS NULL
    """)
    op.execute("""
        CREATE TABLE holdfast.entry_key (
            key      uuid   NOT NULL CONSTRAINT pk_entry_key PRIMARY KEY,
            content  uuid   NOT NULL,
            batch_no bigint NOT NULL
        )
    """)
    # batch_no grows with the heap, so a small BRIN index finds the rows of a batch.
    op.execute("""
        CREATE INDEX ix_entry_key_batch_no ON holdfast.entry_key USING brin (batch_no)
            WITH (pages_per_range = 16)
    """)
    op.execute("""
        CREATE TABLE holdfast.subject (
            id               bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_subject PRIMARY KEY,
            name             text   NOT NULL CONSTRAINT uq_subject_name UNIQUE,
            last_sequence    bigint NOT NULL DEFAULT 0,
            last_type        text,
            last_occurred_at timestamptz,
            last_created_at  timestamptz,
            CONSTRAINT ck_subject_name CHECK (octet_length(name) BETWEEN 1 AND 1024),
            CONSTRAINT ck_subject_last_sequence CHECK (last_sequence >= 0)
        ) WITH (fillfactor = 70)
    """)
    op.execute("""
        CREATE TABLE holdfast.entry (
            subject_id  bigint      NOT NULL,
            sequence    bigint      NOT NULL,
            created_at  timestamptz NOT NULL,
            key         uuid        NOT NULL,
            type        text        NOT NULL,
            occurred_at timestamptz NOT NULL,
            priority    smallint    NOT NULL,
            batch_no    bigint      NOT NULL,
            traceparent text,
            body        bytea       NOT NULL,
            CONSTRAINT pk_entry PRIMARY KEY (subject_id, sequence, created_at),
            CONSTRAINT ck_entry_sequence CHECK (sequence >= 1),
            CONSTRAINT ck_entry_body CHECK (octet_length(body) BETWEEN 2 AND 262144)
        ) PARTITION BY RANGE (created_at)
    """)
    op.execute("""
        CREATE INDEX ix_entry_batch_no ON holdfast.entry USING brin (batch_no)
            WITH (pages_per_range = 16)
    """)
    op.execute("""
        CREATE TABLE holdfast.quarantine (
            id             bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_quarantine PRIMARY KEY,
            batch_no       bigint                     NOT NULL,
            reason         holdfast.quarantine_reason NOT NULL,
            detail         text                       NOT NULL,
            row            text                       NOT NULL,
            quarantined_at timestamptz                NOT NULL DEFAULT now()
        )
    """)
    op.execute("CREATE INDEX ix_quarantine_batch_no ON holdfast.quarantine (batch_no)")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE holdfast.{table}")
