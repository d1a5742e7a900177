"""What `lane_claim` is asked, and what it answers: rows become lanes with their entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from dispatcher.delivery.rules.pace import Allowance
from dispatcher.delivery.rules.values import Entry, Gap, Wanted
from dispatcher.delivery.store.days import NEAR, Range
from dispatcher.delivery.store.looks import Look
from dispatcher.delivery.store.messages import Step
from sink.contract.envelope import BODY_BYTES_MAX


class Head(NamedTuple):
    """The first row of a lane, as `lane_claim` returns it. From `sequence` on it is an `Entry`.

    `created_at` of a lane without an entry says where its entries begin, if that lies before the
    range that was looked at.
    """

    endpoint_id: int
    subject_id: int
    delivered_sequence: int
    last_sequence: int
    priority: int
    due_at: datetime
    tried_us: int
    gap: bool
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
    def whole(self) -> bool:
        """Whether it is leased: its next entry is there."""
        return self.head.sequence is not None and not self.head.gap

    @property
    def since(self) -> datetime | None:
        """The moment from which on to look for its entries, where the range began later."""
        return self.head.created_at if self.head.sequence is None else None


def leasing(
    wanted: Wanted,
    allowed: Mapping[int, Allowance],
    looks: Sequence[Look],
    range_: Range = NEAR,
    *,
    free: bool,
) -> Step:
    """Lease what `allowed` says of each endpoint, where `looks` say.

    With `free`, endpoints that something limits are left alone, and lanes that are not whole.
    """
    return "claiming/lane_claim", {
        "free": free,
        "endpoint_ids": list(allowed),
        "lanes": [each.lanes for each in allowed.values()],
        "entries": [each.entries for each in allowed.values()],
        "token": wanted.token,
        "lease_seconds": float(wanted.lease_seconds),
        "since": range_.since,
        "ahead": range_.ahead,
        "bytes": BODY_BYTES_MAX,
        "look_endpoint_ids": [look.endpoint_id for look in looks],
        "look_priorities": [look.priority for look in looks],
        "look_from": [look.due_from for look in looks],
        "look_to": [look.due_to for look in looks],
    }


def found_in(rows: Sequence[Any]) -> list[Found]:
    """Return what the bare rows of `leasing` say, lane by lane."""
    found = []
    for _, of_lane in groupby(rows, key=_LANE):
        lane = list(of_lane)
        # By position: names take as long again, and there are thousands a second.
        found.append(Found(Head._make(lane[0]), tuple([Entry(*row[_ENTRY]) for row in lane])))
    return found


def emptying(lanes: Sequence[Head]) -> Step:
    """Make lanes idle that have nothing for their endpoint; returns those that miss an entry."""
    return "claiming/lane_empty", {
        "endpoint_ids": [lane.endpoint_id for lane in lanes],
        "subject_ids": [lane.subject_id for lane in lanes],
        "last_sequences": [lane.last_sequence for lane in lanes],
    }


def gap_of(row: Mapping[str, Any]) -> Gap:
    """Return the gap that a row of `leasing` or `emptying` tells of."""
    return Gap(
        endpoint_id=row["endpoint_id"],
        subject_id=row["subject_id"],
        delivered_sequence=row["delivered_sequence"],
        found=row.get("sequence"),
    )
