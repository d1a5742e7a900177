"""Decisions as the Arrow tables that a Spark job hands to the sink."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

BLOCK = "payout_hold.block"
RELEASE = "payout_hold.release"
NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
WINDOW = timedelta(minutes=15)

SCHEMA = pa.schema(
    {
        "subject": pa.string(),
        "type": pa.string(),
        "key": pa.list_(pa.string()),
        "occurred_at": pa.timestamp("us", "UTC"),
        "data": pa.struct({"merchant_id": pa.string(), "exposure_minor": pa.int64()}),
    }
)

REFUSED = pa.schema({"reason": pa.string(), "detail": pa.string(), "row": pa.string()})


def decision(
    subject: str = "m_482",
    window: int = 1,
    type_: str = BLOCK,
    minor: int = 8_500_000,
    **other: Any,
) -> dict[str, Any]:
    """One row: the decision of `subject` at the end of the n-th window after noon."""
    end = NOON + window * WINDOW
    return {
        "subject": subject,
        "type": type_,
        "key": ["payout-hold/v1", subject, end.isoformat(), type_, "1"],
        "occurred_at": end,
        "data": {"merchant_id": subject, "exposure_minor": minor},
    } | other


def table(*rows: dict[str, Any]) -> pa.Table:
    """The rows as `BatchInput.entries`."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


def alternating(subject: str, windows: Sequence[int]) -> list[dict[str, Any]]:
    """A block, a release, a block, ... one a window, so that nothing is suppressed."""
    return [decision(subject, window, (RELEASE, BLOCK)[window % 2]) for window in windows]
