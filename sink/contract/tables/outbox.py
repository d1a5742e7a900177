"""The sink's tables."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Computed,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from holdfast.sink.contract.tables.columns import (
    NAME_RULE,
    TIME,
    brin,
    check,
    enum,
    every,
    identity,
    metadata,
    needed,
    now,
    reference,
)

stream = Table(
    "stream",
    metadata,
    Column("name", Text, primary_key=True),
    Column("query_id", UUID),
    needed("epoch", BigInteger, "0"),
    Column("run_id", UUID),
    Column("checkpoint", Text),
    now("created_at"),
    Column("adopted_at", TIME),
    Column("started_at", TIME),
    Column("acts_for", Text),
    needed("former_names", ARRAY(Text), "'{}'"),
    check("name", NAME_RULE),
    check("epoch", "epoch >= 0"),
)

batch = Table(
    "batch",
    metadata,
    reference("stream", Text, "stream.name"),
    needed("query_id", UUID),
    needed("batch_id", BigInteger),
    Column("batch_no", BigInteger, Identity(always=True), nullable=False),
    needed("run_id", UUID),
    *every(
        BigInteger,
        "epoch",
        "row_count",
        "entry_count",
        "duplicate_count",
        "differing_count",
        "suppressed_count",
        "quarantined_count",
    ),
    needed("digest", LargeBinary),
    Column("source_offsets", Text),
    needed("written_at", TIME),
    Column("routed_at", TIME),
    needed("keeps_suppressed", Boolean, "true"),
    PrimaryKeyConstraint("stream", "query_id", "batch_id"),
    UniqueConstraint("batch_no"),
    check("batch_id", "batch_id >= 0"),
    check(
        "counts",
        "row_count = entry_count + duplicate_count + suppressed_count + quarantined_count"
        " AND least(entry_count, duplicate_count, suppressed_count, quarantined_count) >= 0"
        " AND differing_count BETWEEN 0 AND duplicate_count",
    ),
    check("digest", "octet_length(digest) = 32"),
    Index("ix_batch_unrouted", "batch_no", postgresql_where=text("routed_at IS NULL")),
)

entry_key = Table(
    "entry_key",
    metadata,
    Column("key", UUID, primary_key=True),
    needed("content", UUID),
    needed("batch_no", BigInteger),
    brin("ix_entry_key_batch_no", "batch_no"),
)

subject = Table(
    "subject",
    metadata,
    identity(),
    Column("name", Text, nullable=False, unique=True),
    needed("last_sequence", BigInteger, "0"),
    Column("last_created_at", TIME),
    check("name", "octet_length(name) BETWEEN 1 AND 1024"),
    check("last_sequence", "last_sequence >= 0"),
    # Alembic takes a column with a collation for an expression, and the server does not.
    Index("ix_subject_name", "name", postgresql_ops={"name": 'COLLATE "C"'}),
)

transition = Table(
    "transition",
    metadata,
    needed("subject_id", BigInteger),
    *every(Text, "stream", "last_type"),
    *every(TIME, "last_occurred_at", "updated_at"),
    Column(
        "ahead",
        Boolean,
        Computed("(last_occurred_at - updated_at) > '1 day'::interval", persisted=True),
    ),
    PrimaryKeyConstraint("subject_id", "stream"),
    Index("ix_transition_ahead", "subject_id", postgresql_where=text("ahead")),
)

suppressed = Table(
    "suppressed",
    metadata,
    needed("batch_no", BigInteger),
    needed("key", UUID),
    needed("suppressed_at", TIME),
    needed("subject_id", BigInteger),
    needed("type", Text),
    needed("occurred_at", TIME),
    needed("priority", SmallInteger),
    needed("cause", enum("suppressed_cause")),
    Column("traceparent", Text),
    *every(Text, "key_parts", "data"),
    PrimaryKeyConstraint("batch_no", "key", "suppressed_at"),
    Index("ix_suppressed_subject_id", "subject_id", "batch_no", "key"),
    Index(
        "ix_suppressed_overtaken",
        "batch_no",
        "key",
        postgresql_where=text("cause = 'overtaken'"),
    ),
    postgresql_partition_by="RANGE (suppressed_at)",
)

entry = Table(
    "entry",
    metadata,
    *every(BigInteger, "subject_id", "sequence"),
    needed("created_at", TIME),
    needed("key", UUID),
    needed("type", Text),
    needed("occurred_at", TIME),
    needed("priority", SmallInteger),
    needed("batch_no", BigInteger),
    Column("traceparent", Text),
    needed("body", LargeBinary),
    PrimaryKeyConstraint("subject_id", "sequence", "created_at"),
    check("sequence", "sequence >= 1"),
    check("body", "octet_length(body) BETWEEN 2 AND 262144"),
    brin("ix_entry_batch_no", "batch_no"),
    postgresql_partition_by="RANGE (created_at)",
)

quarantine = Table(
    "quarantine",
    metadata,
    identity(),
    needed("batch_no", BigInteger),
    needed("reason", enum("quarantine_reason")),
    *every(Text, "detail", "row"),
    now("quarantined_at"),
    Column("resolution", enum("quarantine_resolution")),
    Column("resolved_at", TIME),
    Column("resolved_by", Text),
    Column("rule", Text),
    check("resolution", "(resolution IS NULL) = (resolved_at IS NULL)"),
    check("rule", "(reason::text = 'rejected') = (rule IS NOT NULL)"),
    check("rule_name", "rule ~ '^[a-z][a-z0-9_]{0,63}$'"),
    Index("ix_quarantine_batch_no", "batch_no"),
    Index("ix_quarantine_open", "id", postgresql_where=text("resolution IS NULL")),
)

divergence = Table(
    "divergence",
    metadata,
    identity(),
    needed("batch_no", BigInteger),
    needed("digest", LargeBinary),
    needed("run_id", UUID),
    *every(BigInteger, "row_count", "quarantined_count", "differing_count"),
    now("found_at"),
    Column("accepted_at", TIME),
    Column("accepted_by", Text),
    UniqueConstraint("batch_no", "digest"),
    check("digest", "octet_length(digest) = 32"),
    check("accepted", "(accepted_at IS NULL) = (accepted_by IS NULL)"),
)

divergence_row = Table(
    "divergence_row",
    metadata,
    reference("divergence_id", BigInteger, "divergence.id"),
    needed("key", UUID),
    needed("side", enum("divergence_side")),
    Column("subject", Text),
    Column("type", Text),
    Column("occurred_at", TIME),
    Column("body", Text),
    PrimaryKeyConstraint("divergence_id", "key"),
)

stage = Table(
    "stage",
    metadata,
    identity(),
    needed("stream", Text),
    *every(BigInteger, "epoch", "batch_id"),
    now("opened_at"),
)


# Companion tables of the exposure job.

exposure_window = Table(
    "exposure_window",
    metadata,
    *every(Text, "stream", "merchant_id"),
    *every(TIME, "window_end", "window_start"),
    needed("revision", Integer),
    needed("exposure_minor", BigInteger),
    *every(Text, "currency", "policy_version"),
    now("written_at"),
    PrimaryKeyConstraint("stream", "merchant_id", "window_end"),
    check("order", "window_start < window_end"),
    check("revision", "revision >= 1"),
    Index("ix_exposure_window_end", "stream", "window_end"),
)

late_event = Table(
    "late_event",
    metadata,
    identity(),
    needed("stream", Text),
    needed("reason", enum("late_reason")),
    *every(Text, "event_id", "merchant_id", "type"),
    needed("amount_minor", BigInteger),
    needed("currency", Text),
    needed("occurred_at", TIME),
    Column("watermark", TIME),
    now("written_at"),
    Index("ix_late_event_merchant", "merchant_id", "id"),
)
