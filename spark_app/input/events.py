"""Rows of a source on their way to the step: typed as far as they could be, with what is wrong."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from sink.contract.states import QuarantineReason
from spark_app.exposure.schema import TIMESTAMP

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
"""The columns of an event, whatever file it came from. Any of them may be null here."""

REFUSED = pa.schema({"reason": pa.string(), "detail": pa.string(), "row": pa.string()})
"""A row that was set aside: a QuarantineReason, the reason in words, the row as it came."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row cannot be an event."""

    reason: QuarantineReason
    detail: str


@dataclass(frozen=True)
class Parsed:
    """`events` has the columns of EVENT; `faults` names rows (by position) that are no event.

    `text` gives one row as it came, for a person to read.
    """

    events: pa.RecordBatch
    text: Callable[[int], str]
    faults: dict[int, Fault] = field(default_factory=dict)
