"""Rows dated later than a limit: each would overtake its subject's entries until then.

A replay of a written batch finds its ledger row and skips this check; the digest does not depend on
it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.states import QuarantineReason
from holdfast.sink.rows.evidence import detail_text, entry_text
from holdfast.sink.rows.numbering import Integers
from holdfast.sink.rows.prepared import QuarantinedRow

TOLERANCE = timedelta(days=1)
TOLERANCE_MAX = timedelta(days=36_500)


class Split(NamedTuple):
    """The rows that arrived, split by whether they are dated after a limit."""

    entries: pa.Table
    """Those dated up to the limit."""

    places: Integers
    """Their positions among all that arrived."""

    future: Integers
    """The positions of the others."""


def check_tolerance(tolerance: timedelta) -> None:
    """Raise `ValueError` for an invalid tolerance."""
    value: object = tolerance
    if not isinstance(value, timedelta) or not timedelta(0) <= value <= TOLERANCE_MAX:
        raise ValueError(
            f"future_tolerance is {tolerance!r}: expected a timedelta from 0 to"
            f" {TOLERANCE_MAX.days} days"
        )


def split(entries: pa.Table, limit: datetime) -> Split:
    """Split rows of `prepared.ARRIVED` by a limit."""
    beyond = np.asarray(pc.greater(entries["occurred_at"], pa.scalar(limit, _TIME)))
    places = np.flatnonzero(~beyond)
    if len(places) < entries.num_rows:
        entries = entries.take(pa.array(places))
    return Split(entries, places, np.flatnonzero(beyond))


def refused(entry: Mapping[str, Any], limit: datetime) -> QuarantinedRow:
    """Quarantine an entry (a row of `prepared.ENTRIES`) that is dated after the limit."""
    why = detail_text(detail(entry["occurred_at"], limit))
    return QuarantinedRow(QuarantineReason.FUTURE_DATED, why, entry_text(entry))


def detail(occurred_at: datetime, limit: datetime) -> str:
    """Return the reason in one line for a person."""
    return (
        f"occurred_at {rfc3339(occurred_at)} is beyond {rfc3339(limit)}, the database's clock and"
        " the tolerance of this stream"
    )


_TIME = pa.timestamp("us", "UTC")
