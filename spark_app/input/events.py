"""Rows of a source: typed where possible, with their faults."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.sink.contract.states import QuarantineReason
from holdfast.spark_app.exposure.schema import TIMESTAMP

EVENT = pa.schema(
    {
        "event_id": pa.string(),
        "merchant_id": pa.string(),
        "type": pa.string(),
        "currency": pa.string(),
        "amount_minor": pa.int64(),
        "occurred_at": TIMESTAMP,
    }
)
"""The columns of an event from any source. Any of them may be null here."""

REFUSED = pa.schema({"reason": pa.string(), "detail": pa.string(), "row": pa.string()})
"""A refused row: a QuarantineReason, one line for a person, the row as it arrived."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row is not an event."""

    reason: QuarantineReason
    detail: str


@dataclass(frozen=True)
class Parsed:
    """`events` has the columns of EVENT; `faults` has the rows (by position) that are not events.

    `text` returns one row as it arrived, for a person to read, and `place` says where it is, for a
    source whose rows have a place of their own.
    """

    events: pa.RecordBatch
    text: Callable[[int], str]
    faults: dict[int, Fault] = field(default_factory=dict)
    place: Callable[[int], str] | None = None
