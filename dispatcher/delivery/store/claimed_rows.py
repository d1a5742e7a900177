"""The statements of a claim: their parameters, and their rows as lanes with entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.dispatcher.delivery.rules.pace import Allowance
from holdfast.dispatcher.delivery.rules.values import Entry, Gap, Wanted
from holdfast.dispatcher.delivery.store.messages import Step
from holdfast.dispatcher.delivery.store.scan_ranges import ScanRange
from holdfast.sink.contract.envelope import BODY_BYTES_MAX


class Head(NamedTuple):
    """The first row of a lane, as `lane_claim` returns it. From `sequence` on it is an `Entry`."""

    endpoint_id: int
    subject_id: int
    delivered_sequence: int
    last_sequence: int
    priority: int
    due_at: datetime
    tried_us: int
    sequence: int | None
    number: int | None
    key: UUID | None
    created_at: datetime | None
    traceparent: str | None
    body: bytes | None
    rescued: int | None
    forgotten: bool | None


_LANE = itemgetter(0, 1)
_ENTRY = slice(Head._fields.index("sequence"), None)


@dataclass(frozen=True, slots=True)
class Found:
    """A due lane, and what a claim found in it."""

    head: Head
    entries: tuple[Entry, ...]

    @property
    def leased(self) -> bool:
        """Whether the lane is leased: its next entry was found."""
        return self.head.sequence is not None


def due_step(allowed: Mapping[int, Allowance], ranges: Sequence[ScanRange], *, free: bool) -> Step:
    """Lock up to `allowed` due lanes in `ranges`; `free` skips endpoints with a limit."""
    return "claiming/lane_due", {
        "free": free,
        "endpoint_ids": list(allowed),
        "lanes": [each.lanes for each in allowed.values()],
        "entries": [each.entries for each in allowed.values()],
        "range_endpoint_ids": [each.endpoint_id for each in ranges],
        "range_priorities": [each.priority for each in ranges],
        "range_from": [each.due_from for each in ranges],
        "range_to": [each.due_to for each in ranges],
    }


def claim_step(wanted: Wanted) -> Step:
    """Lease the lanes that `due_step` locked in the same transaction."""
    return "claiming/lane_claim", {
        "token": wanted.token,
        "lease_seconds": float(wanted.lease_seconds),
        "bytes": BODY_BYTES_MAX,
    }


def found_in(rows: Sequence[Any]) -> list[Found]:
    """Return the bare rows of `claim_step` by lane."""
    found = []
    for _, of_lane in groupby(rows, key=_LANE):
        lane = list(of_lane)
        # By position: access by name takes twice as long, and there are thousands of rows a second.
        found.append(Found(Head._make(lane[0]), tuple([Entry(*row[_ENTRY]) for row in lane])))
    return found


def empty_step(lanes: Sequence[Head]) -> Step:
    """Decide about lanes whose next entry was not found; returns those that did not change."""
    return "claiming/lane_empty", {
        "endpoint_ids": [lane.endpoint_id for lane in lanes],
        "subject_ids": [lane.subject_id for lane in lanes],
        "delivered": [lane.delivered_sequence for lane in lanes],
        "last": [lane.last_sequence for lane in lanes],
    }


def gap_of(row: Mapping[str, Any]) -> Gap:
    """Return the gap in a row of `empty_step`."""
    return Gap(**{name: row[name] for name in Gap.__slots__})
