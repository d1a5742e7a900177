"""Attempts of an entry, of a subject, or the newest of all subjects, page by page."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.dispatcher.operators.common.paging import ALWAYS, cursor_numbers
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import Outcome

SCAN_FIRST = 1_000
SCAN_MAX = 100_000
"""Attempts of all subjects that a page with a filter scans at first, and at most."""

_PLACE = re.compile(r"(\d{1,18})\.(\d{1,9})\.(\d{1,9})", re.ASCII)
_NEWEST_PLACE = re.compile(r"(\d{1,16})\.(\d{1,9})\.(\d{1,18})\.(\d{1,18})\.(\d{1,9})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEQUENCES = (1, 2**63 - 1)


class AttemptPlace(NamedTuple):
    """An attempt's position in a list of one subject: the newest sequence first."""

    sequence: int
    number: int
    endpoint_id: int

    @classmethod
    def of(cls, text: str) -> "AttemptPlace":
        """Read `text` as `str` writes it; raises `CommandError` for anything else."""
        return cls(*cursor_numbers(_PLACE, text))

    def __str__(self) -> str:
        return f"{self.sequence}.{self.number}.{self.endpoint_id}"


class NewestPlace(NamedTuple):
    """An attempt's position in the list of all subjects: the newest first."""

    finished_at: datetime
    endpoint_id: int
    subject_id: int
    sequence: int
    number: int

    @classmethod
    def of(cls, text: str) -> "NewestPlace":
        """Read `text` as `str` writes it; raises `CommandError` for anything else."""
        micros, *rest = cursor_numbers(_NEWEST_PLACE, text)
        return cls(_EPOCH + timedelta(microseconds=micros), *rest)

    def __str__(self) -> str:
        micros = (self.finished_at - _EPOCH) // timedelta(microseconds=1)
        return ".".join(map(str, (micros, *self[1:])))


@dataclass(frozen=True, slots=True)
class AttemptFilter:
    """A filter of attempts; None means any."""

    endpoint: str | None = None
    outcome: str | None = None
    """One of `Outcome`."""

    since: datetime | None = None
    """Finished at this moment or later."""

    until: datetime | None = None
    """Finished before this moment."""


class Attempts(Entries):
    """Reads of attempts."""

    def of_key(
        self, key: Key, filter_: AttemptFilter, *, limit: int, before: AttemptPlace | None = None
    ) -> tuple[list[Row], AttemptPlace | None]:
        """Return attempts of one entry, as `of_subject`; raises `CommandError` as `entry`."""
        entry = self.entry(key)
        sequences = (entry["sequence"], entry["sequence"])
        rows, place = self._page(entry["subject_id"], sequences, filter_, limit, before)
        return [{"subject": entry["subject"], **row} for row in rows], place

    def of_subject(
        self,
        subject: str,
        filter_: AttemptFilter,
        *,
        sequence: int | None = None,
        limit: int,
        before: AttemptPlace | None = None,
    ) -> tuple[list[Row], AttemptPlace | None]:
        """Return attempts, the newest sequence first, and the cursor of the next page, or None.

        Within a sequence the highest number comes first. Raises `CommandError` (nothing matched)
        for an unknown subject or endpoint.
        """
        subject_id = self._subject_id(subject)
        sequences = _SEQUENCES if sequence is None else (sequence, sequence)
        rows, place = self._page(subject_id, sequences, filter_, limit, before)
        return [{"subject": subject, **row} for row in rows], place

    def of_all_subjects(
        self, filter_: AttemptFilter, *, limit: int, before: NewestPlace | None = None
    ) -> tuple[list[Row], NewestPlace | None]:
        """Return the newest attempts of all subjects, and the cursor of the next page, or None.

        A row is one of `of_subject`. A page of one endpoint, or of delivered attempts, scans at
        most 100,000 attempts: it may be short, or empty, although older ones follow. Raises
        `CommandError` (nothing matched) for an unknown endpoint.
        """
        since, until = ALWAYS
        parameters: Row = {
            "endpoint_id": self.endpoint_id(filter_.endpoint),
            "outcome": filter_.outcome,
            "since": filter_.since or since,
            "until": filter_.until or until,
        }
        last = before or NewestPlace(until, 0, 0, 0, 0)
        by_outcome = filter_.outcome not in (None, Outcome.DELIVERED)
        if by_outcome or (parameters["endpoint_id"] is None and filter_.outcome is None):
            name = "attempts/undelivered" if by_outcome else "attempts/newest"
            rows, further = (
                self._all(name, {**parameters, **_before(last), "limit": limit + 1}),
                None,
            )
        else:
            rows, further = self._among_newest(parameters, limit + 1, last)
        if len(rows) > limit:
            further = NewestPlace(*(rows[limit - 1][n] for n in NewestPlace._fields))
        return [_outward(row) for row in rows[:limit]], further

    def endpoint_id(self, name: str | None) -> int | None:
        """Return the number of an endpoint; raises `CommandError` for an unknown name."""
        if name is None:
            return None
        row = self._maybe("endpoints/id", {"endpoint": name})
        if row is None:
            raise CommandError(
                f"no endpoint is called {name!r} (`holdfast endpoint list`). Nothing was changed.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_endpoint",
            )
        number: int = row["id"]
        return number

    def _among_newest(
        self, parameters: Row, limit: int, before: NewestPlace
    ) -> tuple[list[Row], NewestPlace | None]:
        """Scan runs of attempts until the page is full, because no index is by endpoint."""
        rows: list[Row] = []
        scanned, scan = 0, SCAN_FIRST
        while len(rows) < limit:
            if scanned >= SCAN_MAX:
                return rows, before
            end = self._maybe(
                "attempts/scan_end", {**parameters, "up_to": before.finished_at, "scan": scan}
            )
            run = parameters if end is None else {**parameters, "since": end["finished_at"]}
            left = {"limit": limit - len(rows)}
            rows += self._all("attempts/newest", {**run, **_before(before), **left})
            if end is None:
                break
            before = NewestPlace(end["finished_at"], 0, 0, 0, 0)
            scanned += scan
            scan = min(4 * scan, max(SCAN_MAX - scanned, 1))
        return rows, None

    def _page(
        self,
        subject_id: int,
        sequences: tuple[int, int],
        filter_: AttemptFilter,
        limit: int,
        before: AttemptPlace | None,
    ) -> tuple[list[Row], AttemptPlace | None]:
        since, until = ALWAYS
        rows = self._all(
            "attempts/list",
            {
                "subject_id": subject_id,
                "first_sequence": sequences[0],
                "last_sequence": sequences[1],
                "endpoint_id": self.endpoint_id(filter_.endpoint),
                "outcome": filter_.outcome,
                "since": filter_.since or since,
                "until": filter_.until or until,
                **{f"before_{n}": before and getattr(before, n) for n in AttemptPlace._fields},
                "limit": limit + 1,
            },
        )
        more = len(rows) > limit
        rows = [with_receipt(row) for row in rows[:limit]]
        last = AttemptPlace(*(rows[-1][n] for n in AttemptPlace._fields)) if more else None
        return rows, last


def with_receipt(row: Row) -> Row:
    """Return a row with its receipt as a mapping, or None without one."""
    return {**row, "receipt": None if row["receipt"] is None else json.loads(row["receipt"])}


def _before(place: NewestPlace) -> Row:
    return {
        "up_to": place.finished_at,
        **{f"before_{name}": getattr(place, name) for name in NewestPlace._fields[1:]},
    }


def _outward(row: Row) -> Row:
    return {name: value for name, value in with_receipt(row).items() if name != "subject_id"}
