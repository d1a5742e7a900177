"""Entries: one by its key, a page of the newest, or new ones as they are written."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from uuid import UUID

from psycopg import IsolationLevel

from holdfast.dispatcher.operators.cancellations.rules import cancellation
from holdfast.dispatcher.operators.cancellations.store import Cancellations
from holdfast.dispatcher.operators.common.paging import ALWAYS, cursor_numbers
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.verbs import (
    Kind,
    OfStream,
    OfSubject,
    Param,
    Since,
    Until,
)
from holdfast.dispatcher.operators.entries.rules import SKIPPED_MAX, BatchCursor, Stage, standing
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key

SCAN_FIRST = 20_000
"""Entries that a page scans at first; each further scan takes four times as many."""

SCAN_MAX = 100_000
"""About the maximum number of entries that one page scans."""

BATCHES_AT_ONCE = 10_000

BEYOND = 10**18 - 1
"""After every subject and sequence of a batch; the largest number that a cursor holds."""

_PLACE = re.compile(r"(\d{1,18})\.(\d{1,18})\.(\d{1,18})", re.ASCII)


class Place(NamedTuple):
    """An entry's position in the order of lists, the newest first."""

    batch_no: int
    subject_id: int
    sequence: int

    @classmethod
    def of(cls, text: str) -> "Place":
        """Read `text` as `str` writes it; raises `CommandError` for anything else."""
        return cls(*cursor_numbers(_PLACE, text))

    def __str__(self) -> str:
        return f"{self.batch_no}.{self.subject_id}.{self.sequence}"


QUERY = "The query id of `batch`'s checkpoint. Default: the adopted one."


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of entries; None means any. `since`, `until`: by the time when they were written."""

    subject: OfSubject = None
    stream: OfStream = None
    batch: Annotated[
        int | None, Param("Only this batch of `stream`.", Kind.BATCH, label="Batch", needs="stream")
    ] = None
    query_id: Annotated[UUID | None, Param(QUERY, Kind.UUID, needs="batch")] = None
    type: Annotated[
        str | None, Param("Only this type.", Kind.TEXT, label="Type", hint="payout_hold.block")
    ] = None
    since: Since = None
    until: Until = None


class Entries(Streams):
    """Reads of entries."""

    def entry(self, key: Key) -> Row:
        """Return an entry with its body, its `batch`, and its `delivery` at each endpoint.

        Raises `CommandError` (nothing matched) for a key that was never used, and for one whose
        entry is not stored.
        """
        batch = self._maybe("common/entry_key_find", {"key": key.digest})
        if batch is None:
            raise CommandError(
                f"no entry has the key {key.text}, and none ever had. Nothing was changed; see"
                " `holdfast entry list`.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_entry",
            )
        entry = self._maybe("entries/find", {**batch, "key": key.digest})
        if entry is None:
            suppressed = self._maybe("common/suppressed_cause", {**batch, "key": key.digest})
            became = "it was suppressed, or its day was dropped"
            if suppressed is not None:
                became = (
                    f"it was suppressed ({suppressed['cause']}): `holdfast suppressed show"
                    f" {key.text}`"
                )
            raise CommandError(
                f"the key {key.text} was used by batch {batch['batch_id']} of stream"
                f" {batch['stream']!r} (query {batch['query_id']}),"
                f" {rfc3339(batch['written_at'])}, and no entry of it is stored: {became}. Nothing"
                " was changed.",
                ExitCode.NOTHING_MATCHED,
                code="entry_not_stored",
            )
        rows = self._all("entries/delivery", {**batch, **entry})
        cancelled = self.beside(Cancellations).of_entry(entry["subject_id"], entry["sequence"])
        delivery = [
            _standing(row, entry["sequence"], cancellation(cancelled, row["endpoint"]))
            for row in rows
        ]
        return {"key": key.text, **entry, "batch": batch, "delivery": delivery}

    def newest(
        self,
        filter_: Filter,
        *,
        limit: int,
        before: Place | None = None,
        data: tuple[str, str] | None = None,
    ) -> tuple[list[Row], Place | None]:
        """Return entries without bodies, the newest first, and the next page's cursor, or None.

        `data` is a member of `data` in the body and its value as text, for those who may read
        bodies: each row then has its `data`, and as `delivered` the endpoints that got it, each
        with the `outcome` of its first receipt (`delivered` without one), or `cancelled`.

        All are older than `before`. A page of a rare type may be short, or empty, although older
        entries follow: it scans about 100,000 entries. Raises `CommandError` (nothing matched) for
        an unknown stream, batch or subject.
        """
        since, until = ALWAYS
        parameters: Row = {
            "type": filter_.type,
            "stream": filter_.stream,
            "since": filter_.since or since,
            "until": filter_.until or until,
            "batch_no": self._batch_no(filter_),
        }
        if data is not None:
            named = filter_.subject
            parameters |= {
                "member": data[0],
                "value": data[1],
                "subject_id": None if named is None else self._subject_id(named),
            }
        further = None
        if filter_.subject is None or data is not None:
            rows, further = self._among_batches(parameters, limit + 1, before)
        else:
            rows = self._of_subject(filter_.subject, parameters, limit + 1, before)
        more = len(rows) > limit
        rows = [{**row, "key": Key(row["key"]).text} for row in rows[:limit]]
        if data is not None:
            self._add_cancelled(rows)
        last = Place(*(rows[-1][name] for name in Place._fields)) if more else further
        return rows, last

    def _add_cancelled(self, rows: list[Row]) -> None:
        """Add to `delivered` where entries are cancelled, in place of a receipt's outcome."""
        for place, names in self.beside(Cancellations).among(rows).items():
            [row] = [each for each in rows if (each["subject_id"], each["sequence"]) == place]
            row["delivered"] = [
                *row["delivered"],
                *({"endpoint": name or "all", "outcome": "cancelled"} for name in names),
            ]

    def _batch_no(self, filter_: Filter) -> int | None:
        if filter_.stream is None:
            return None
        if filter_.batch is None:
            self._known_stream(filter_.stream)
            return None
        number: int = self._batch(filter_.stream, filter_.batch, filter_.query_id)["batch_no"]
        return number

    def _of_subject(
        self, subject: str, parameters: Row, limit: int, before: Place | None
    ) -> list[Row]:
        subject_id = self._subject_id(subject)
        place = {"before_sequence": None if before is None else before.sequence}
        rows = self._all(
            "entries/of_subject",
            {**parameters, **place, "subject_id": subject_id, "limit": limit},
        )
        return [{"subject": subject, **row} for row in rows]

    def _among_batches(
        self, parameters: Row, limit: int, before: Place | None
    ) -> tuple[list[Row], Place | None]:
        """Scan runs of batches until the page is full, because no index is by type."""
        rows: list[Row] = []
        page = "entries/list_data" if "member" in parameters else "entries/list"
        batch_no, entries, scanned = parameters["batch_no"], SCAN_FIRST, 0
        up_to = batch_no or (before.batch_no if before else 2**63 - 1)
        while len(rows) < limit:
            if scanned >= SCAN_MAX:
                return rows, Place(up_to, BEYOND, BEYOND)
            run = self._one(
                "entries/batches",
                {
                    **parameters,
                    "up_to_batch_no": up_to,
                    "batches": 1 if batch_no else BATCHES_AT_ONCE,
                    "entries": entries,
                },
            )
            if not run["batches"]:
                break
            place = {f"before_{name}": before and getattr(before, name) for name in Place._fields}
            left = {"limit": limit - len(rows)}
            rows += self._all(page, {**parameters, **run, **place, **left})
            if batch_no:
                break
            up_to, before = run["first_batch_no"] - 1, None
            scanned += entries
            entries = min(4 * entries, max(SCAN_MAX - scanned, 1))
        return rows, None


def _standing(row: Row, sequence: int, cancelled: Row | None) -> Row:
    place = standing({**row, "cancelled_at": cancelled and cancelled["cancelled_at"]}, sequence)
    delivery = {
        "endpoint": row["endpoint"],
        "state": place.stage.value,
        "at": place.until,
        "behind_sequence": place.behind,
        "held_up": place.hold_reason,
        "attempts": row["attempts"],
        "last_outcome": row["last_outcome"],
        "last_tried_at": row["last_tried_at"],
    }
    if place.stage is Stage.DEAD:
        delivery |= {"dead_reason": row["dead_reason"], "dead_detail": row["dead_detail"]}
    if cancelled is not None:
        delivery |= {
            "cancelled_by": cancelled["cancelled_by"],
            "cancel_reason": cancelled["reason"],
        }
    return delivery


TAIL_BATCHES = 100
TAIL_ENTRIES = 1_000


class Tail(Entries):
    """Follows the outbox: the newest entries, then new ones."""

    def begin(self, filter_: Filter, lines: int) -> list[Row]:
        """Return the newest `lines` entries, the oldest of them first; `more` continues.

        Raises `CommandError` (nothing matched) for an unknown stream or subject.
        """
        self._filter = filter_
        self._connection.isolation_level = IsolationLevel.REPEATABLE_READ
        with self._transaction():
            rows = self.newest(filter_, limit=lines)[0] if lines else []
            newest = self._one("entries/tail_newest")["batch_no"]
            self._cursor = BatchCursor(max(0, newest - SKIPPED_MAX))
            # A batch that is being written now has one of the last numbers.
            seen = self._batches(SKIPPED_MAX)
            self._cursor.see([each["batch_no"] for each in seen], time.monotonic())
        return rows[::-1]

    def more(self) -> Iterator[list[Row]]:
        """Yield the entries written since, batch by batch, until none is left."""
        while batches := self._batches(TAIL_BATCHES):
            for batch in batches:
                if self._filter.stream in (None, batch["stream"]) and batch["entry_count"]:
                    yield from self._of(batch)
            self._cursor.see([each["batch_no"] for each in batches], time.monotonic())

    def _batches(self, limit: int) -> list[Row]:
        cursor = self._cursor
        return self._all(
            "entries/tail_batches",
            {"after": cursor.after, "missing": cursor.missing, "limit": limit},
        )

    def _of(self, batch: Row) -> Iterator[list[Row]]:
        place = {"after_subject_id": 0, "after_sequence": 0}
        names = {name: batch[name] for name in ("stream", "query_id", "batch_id", "batch_no")}
        chosen = {"subject": self._filter.subject, "type": self._filter.type}
        while True:
            rows = self._all("entries/tail", {**batch, **chosen, **place, "limit": TAIL_ENTRIES})
            if rows:
                yield [{**row, **names, "key": Key(row["key"]).text} for row in rows]
            if len(rows) < TAIL_ENTRIES:
                return
            place = {f"after_{name}": rows[-1][name] for name in ("subject_id", "sequence")}
