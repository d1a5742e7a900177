"""Companion tables of the exposure job."""

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, Table, Text

from holdfast.sink.contract.tables.columns import (
    TIME,
    check,
    enum,
    every,
    identity,
    metadata,
    needed,
    now,
)

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
