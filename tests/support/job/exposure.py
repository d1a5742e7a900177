"""Shorthand for tests of the exposure step: clock times for microseconds, tuples for rows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import ROWS, STATE_ABSORBED
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import StepOutput, next_timer_us, step

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = datetime(2026, 11, 2, tzinfo=UTC)

FIFTY_THOUSAND = """
version = "v1"
[[default]]
limit_minor = 5000000
release_level_minor = 5000000
"""


def at(clock: str) -> int:
    """`12:15`, `12:15:30` or `12:15:30.000001` on the day of the tests, in microseconds."""
    hours, minutes, *seconds = clock.split(":")
    moment = DAY + timedelta(hours=int(hours), minutes=int(minutes))
    return (moment - EPOCH) // timedelta(microseconds=1) + round(float((seconds or ["0"])[0]) * 1e6)


def clock(moment: datetime) -> str:
    """The inverse of `at`, for whole minutes of the day of the tests and the days around it."""
    days = (moment - DAY).days
    return f"{moment:%H:%M}" + (f"{days:+d}d" if days else "")


def row(event_id: str, when: str, amount: int, merchant: str = "m", **other: Any) -> dict[str, Any]:
    """One event; `other` replaces type, currency or future_dated."""
    return {
        "event_id": event_id,
        "merchant_id": merchant,
        "type": "payout_submitted",
        "currency": "USD",
        "amount_minor": amount,
        "occurred_at": at(when),
        "future_dated": False,
    } | other


def table(*rows: dict[str, Any]) -> pa.Table:
    """Rows as the step takes them."""
    return pa.Table.from_pylist(list(rows), schema=ROWS)


class Group:
    """One key group through several batches."""

    def __init__(self, policy: str = FIFTY_THOUSAND, **settings: int) -> None:
        self.policy = Policy.parse(policy)
        self.settings = Settings(**settings)
        self.state = GroupState.empty()
        self.watermark: int | None = None
        self.output = StepOutput.empty()

    def batch(self, watermark: str | None, *rows: dict[str, Any]) -> "Group":
        """Take one batch; what it put out is in `emitted`, `decided` and `refused`."""
        self.watermark = None if watermark is None else at(watermark)
        self.state, self.output = step(
            self.state, table(*rows), self.watermark, self.policy, self.settings
        )
        return self

    @property
    def emitted(self) -> list[tuple[str, str, int, int]]:
        """(merchant, window end, revision, exposure) of the last batch."""
        return [
            (w["merchant_id"], clock(w["window_end"]), w["revision"], w["exposure_minor"])
            for w in self.output.windows.to_pylist()
        ]

    @property
    def decided(self) -> list[tuple[str, str, str, int, int]]:
        """(merchant, action, window end, ordinal, exposure) of the last batch."""
        return [
            (
                d["merchant_id"],
                d["action"],
                clock(d["window_end"]),
                d["ordinal"],
                d["exposure_minor"],
            )
            for d in self.output.decisions.to_pylist()
        ]

    @property
    def refused(self) -> list[tuple[str, str]]:
        """(reason, event id) of the last batch."""
        return [(r["reason"], r["event_id"]) for r in self.output.late.to_pylist()]

    @property
    def windows(self) -> list[tuple[str, str, int, int]]:
        """(merchant, window end, revision, exposure) in state; revision 0 is an open window."""
        rows = self.state.windows.to_pylist()
        rows.sort(key=lambda w: (w["merchant_id"], w["window_end"]))
        return [
            (w["merchant_id"], clock(w["window_end"]), w["revision"], w["exposure_minor"])
            for w in rows
        ]

    @property
    def ids(self) -> list[str]:
        """The event ids in state."""
        return sorted(self.state.absorbed["event_id"].to_pylist())

    @property
    def absorbed(self) -> list[tuple[str, str, str]]:
        """(merchant, window end, event id) in state, in the order of the state."""
        return [
            (a["merchant_id"], clock(a["window_end"]), a["event_id"])
            for a in self.state.absorbed.to_pylist()
        ]

    def forget_ids(self) -> GroupState:
        """The state as it is read for a step without rows."""
        return replace(self.state, absorbed=STATE_ABSORBED.empty_table())

    @property
    def merchants(self) -> dict[str, bool]:
        """Merchants in state, and whether they are held."""
        return {m["merchant_id"]: m["held"] for m in self.state.merchants.to_pylist()}

    @property
    def timer(self) -> int | None:
        """When the group has to be called next."""
        return next_timer_us(self.state, self.watermark, self.settings)
