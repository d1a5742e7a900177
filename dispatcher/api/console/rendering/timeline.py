"""The timeline of an entry: steps with the time between them. Pure."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.dispatcher.api.console.rendering.filters import counted, words
from holdfast.dispatcher.operators.common.text import between
from holdfast.sink.contract.money import money

Row = dict[str, Any]


class Step(NamedTuple):
    """A step of the timeline. `gap` is the signed time since the step before, or ""."""

    at: datetime | None
    gap: str
    what: str
    tone: str
    detail: str


class Timeline(NamedTuple):
    """The steps at one endpoint; those before any endpoint have no name."""

    endpoint: str | None
    steps: list[Step]


MINOR = "_minor"

ALL_SHOWN_MAX = 5
"""Of more attempts than this, only the first and the newest are shown."""

NEWEST_SHOWN = 3

TONES = {
    "delivered": "good",
    "failed": "bad",
    "rejected": "bad",
    "gone": "bad",
    "refused": "bad",
    "unknown": "warn",
    "throttled": "wait",
}


def timelines(trace: Row) -> list[Timeline]:
    """Return the steps of a `Trace.trace`: first those up to routing, then each endpoint's."""
    entry, batch = trace["entry"], trace["batch"]
    steps: list[Step] = []
    _add(steps, entry["occurred_at"], "decided", "idle", "by the job, in event time")
    _add(
        steps,
        batch["written_at"],
        "written",
        "good",
        f"by batch {batch['batch_id']} of stream {batch['stream']}, in one transaction with"
        f" {counted(batch['entry_count'], 'entry', 'entries')}",
    )
    if batch["routed_at"] is None:
        steps.append(Step(None, "", "routed", "wait", "waits for a dispatcher"))
    else:
        _add(steps, batch["routed_at"], "routed", "good", "to the lanes of its endpoints")
    begun = batch["routed_at"] or batch["written_at"]
    return [
        Timeline(None, steps),
        *(
            Timeline(each["endpoint"], _attempts(each["attempts"], begun))
            for each in trace["endpoints"]
        ),
    ]


def decided(decision: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of a decision; amounts with their currency, if known.

    >>> decided({"limit_minor": 5_000_000, "currency": "USD"})
    [('limit', '50,000.00 USD'), ('currency', 'USD')]
    """
    currency = decision.get("currency")
    detail = []
    for name, value in decision.items():
        if name.endswith(MINOR) and type(value) is int and isinstance(currency, str):
            detail.append((words(name.removesuffix(MINOR)), money(value, currency)))
        else:
            detail.append((words(name), value if isinstance(value, str) else json.dumps(value)))
    return detail


def _attempts(rows: list[Row], begun: datetime) -> list[Step]:
    steps: list[Step] = []
    left_out = rows[1:-NEWEST_SHOWN] if len(rows) > ALL_SHOWN_MAX else []
    for row in rows:
        if row in left_out:
            if row is left_out[-1]:
                said_so = f"{len(left_out)} further attempts"
                _add(steps, row["finished_at"], said_so, "idle", "all are listed below")
            continue
        detail = [f"HTTP {row['status']}"] if row["status"] is not None else []
        detail += [f"took {row['duration_ms']} ms"] if row["duration_ms"] is not None else []
        detail += [row["error"]] if row["error"] else []
        what = f"attempt {row['number']}: {row['outcome']}"
        tone = TONES.get(row["outcome"], "idle")
        _add(steps, row["finished_at"], what, tone, ", ".join(detail), begun)
        receipt = row["receipt"]
        if receipt is not None:
            applied = _moment(receipt.get("applied_at"))
            said_so = f"{receipt.get('outcome')}, by the receiver's clock"
            _add(steps, applied, "receipt", "good", said_so)
    return steps


def _add(
    steps: list[Step],
    at: datetime | None,
    what: str,
    tone: str,
    detail: str,
    begun: datetime | None = None,
) -> None:
    before = next((each.at for each in reversed(steps) if each.at is not None), begun)
    gap = between(before, at) if before is not None and at is not None else ""
    steps.append(Step(at, gap, what, tone, detail))


def _moment(text: Any) -> datetime | None:
    """Parse a receiver's time; None if it is not one or has no zone."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
