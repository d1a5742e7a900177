"""`FakeOutbox`: an outbox in memory, for tests of a job without a database."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from holdfast.sink.contract.acceptance import accepted_query_id
from holdfast.sink.contract.requeue import ENDINGS, check_stream, reserved
from holdfast.sink.contract.states import QuarantineReason, SuppressedCause
from holdfast.sink.errors import Divergence, KeyDifference
from holdfast.sink.rows.batch import BatchInput, prepare, selected
from holdfast.sink.rows.future_dated import TOLERANCE, check_tolerance, refused, split
from holdfast.sink.rows.numbering import SUBJECTS
from holdfast.sink.rows.outcome import (
    FIRST_KEYS,
    Keys,
    Recorded,
    Replayed,
    Run,
    Written,
    diverged,
    judge,
)
from holdfast.sink.rows.prepared import PreparedBatch, quarantine_table
from holdfast.sink.rows.quarantine_limit import QuarantineLimit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Decision:
    """What the columns of one row say."""

    stream: str
    batch_id: int
    subject: str
    type: str
    key: tuple[str, ...]
    occurred_at: datetime
    priority: int
    traceparent: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class Entry(Decision):
    """A decision that is written, and delivered to the endpoints of its stream."""

    sequence: int
    """From 1 in each subject."""

    body: bytes
    """The bytes that receivers get."""


@dataclass(frozen=True)
class Suppressed(Decision):
    """A decision that is recorded and not written, because it changes nothing or is overtaken."""

    cause: SuppressedCause


@dataclass(frozen=True)
class Quarantined:
    """A row that cannot become an entry, or that a rule of the job rejects."""

    stream: str
    batch_id: int
    reason: QuarantineReason
    rule: str | None
    """The rule of the job that rejects the row; then `reason` is `rejected`."""
    detail: str
    row: str


class _Known(NamedTuple):
    content: str
    batch_no: int


class _Batch(NamedTuple):
    """The primary key of the ledger."""

    stream: str
    query_id: UUID
    batch_id: int


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class FakeOutbox:
    """An outbox in memory that decides as the sink does, by the same code.

    Duplicates, suppression, numbering, quarantine, replays that differ and their acceptance are
    those of `OutboxSink`. It has one driver: no fences, no checkpoint that is compared, no `also`,
    and no limit on what Spark's driver holds. `clock` stands for the database's.

    >>> outbox = FakeOutbox()
    >>> sink = outbox.sink("payouts", suppress_repeats=True)
    >>> sink(decisions, 0).counts.entries
    2
    >>> sink(decisions, 0)  # a replay
    Replayed(stream='payouts', batch_id=0, batch_no=1, ...)
    >>> [(entry.subject, entry.sequence, entry.type) for entry in outbox.entries]
    [('m_1', 1, 'payout_hold.block'), ('m_2', 1, 'payout_hold.block')]
    """

    def __init__(self, clock: Callable[[], datetime] = _utc_now) -> None:
        self.entries: list[Entry] = []
        """In the order in which they are written."""
        self.suppressed: list[Suppressed] = []
        self.quarantined: list[Quarantined] = []
        self._clock = clock
        self._keys: dict[str, _Known] = {}
        self._subjects: dict[str, int] = {}
        self._sequences: dict[int, int] = {}
        self._transitions: dict[tuple[str, int], tuple[str, datetime]] = {}
        self._ledger: dict[_Batch, Recorded] = {}
        self._differing: dict[_Batch, bytes] = {}
        self._accepted: dict[_Batch, list[bytes]] = {}
        self._queries: dict[str, int] = {}

    def sink(
        self,
        stream: str,
        *,
        select: Callable[[pa.Table], BatchInput] | None = None,
        suppress_repeats: bool = False,
        quarantine_limit: QuarantineLimit | None = None,
        future_tolerance: timedelta = TOLERANCE,
    ) -> "FakeSink":
        """Return what stands for `OutboxSink` of a stream, with the settings of that name."""
        check_stream(stream)
        if stream.endswith(ENDINGS):
            raise reserved(stream)
        check_tolerance(future_tolerance)
        limit = quarantine_limit or QuarantineLimit()
        return FakeSink(
            self, stream, select or BatchInput, suppress_repeats, limit, future_tolerance
        )

    def adopt(self, stream: str) -> None:
        """Begin a new checkpoint, as after `holdfast stream adopt`: its batches are new ones."""
        self._queries[stream] = self._queries.get(stream, 0) + 1

    def accept(self, stream: str, batch_id: int) -> None:
        """Accept the content of the latest replay that differed, as `holdfast batch accept` does.

        The next replay with this content writes the keys that are new. Raises `KeyError` where no
        replay of the batch differed, and `ValueError` where a later batch is written: Spark repeats
        only the newest one.
        """
        batch = _Batch(stream, self._query(stream), batch_id)
        if any(row > batch for row in self._ledger if row[:2] == batch[:2]):
            raise ValueError(f"batch {batch_id} of {stream!r} is not the newest one")
        self._accepted.setdefault(batch, []).append(self._differing[batch])

    def _query(self, stream: str) -> UUID:
        return UUID(int=self._queries.get(stream, 0))

    def _apply(self, sink: "FakeSink", batch: PreparedBatch, batch_id: int) -> Written | Replayed:
        run = Run(sink.stream, self._query(sink.stream), UUID(int=0), 1)
        row = _Batch(run.stream, run.query_id, batch_id)
        now = self._clock()
        recorded = self._ledger.get(row)
        if recorded is None:
            return self._write(sink, row, batch, now, now + sink.future_tolerance)
        if recorded.digest != batch.digest:
            limit = recorded.written_at + sink.future_tolerance
            accepted = self._accepted.get(row, [])
            if batch.digest not in accepted:
                self._differing[row] = batch.digest
                numbers = [recorded.batch_no]
                numbers += [each.batch_no for each in self._added(row, accepted)]
                difference = self._compare(batch, recorded, numbers, limit)
                raise diverged(run, batch_id, recorded, difference)
            of_replay = _of_replay(row, batch.digest)
            added = self._ledger.get(of_replay)
            if added is None:
                return self._write(sink, of_replay, batch, now, limit)
            recorded = added
        return Replayed(
            run.stream, batch_id, recorded.batch_no, recorded.written_at, recorded.counts
        )

    def _added(self, row: _Batch, accepted: list[bytes]) -> Iterator[Recorded]:
        for digest in accepted:
            if (added := self._ledger.get(_of_replay(row, digest))) is not None:
                yield added

    def _write(
        self, sink: "FakeSink", row: _Batch, batch: PreparedBatch, now: datetime, limit: datetime
    ) -> Written:
        within = split(batch.arrived, limit)
        quarantined = batch.quarantined.num_rows + len(within.future)
        name = f"stream {row.stream!r}: batch {row.batch_id}"
        sink.quarantine_limit.check(name, quarantined, batch.row_count)
        batch_no = len(self._ledger) + 1
        numbered, counts = judge(
            within,
            self._states(sink, within.entries),
            self._record_keys(within.entries, batch_no),
            row_count=batch.row_count,
            duplicates=batch.duplicate_count,
            quarantined=quarantined,
            suppress=sink.suppress_repeats,
        )
        self._ledger[row] = Recorded(UUID(int=0), 1, batch.digest, batch_no, now, counts)
        for place, sequence in zip(numbered.rows, numbered.sequence, strict=True):
            entry = batch.entries.slice(place, 1).to_pylist()[0]
            body = f"{entry['head']}{sequence}{entry['tail']}".encode()
            self.entries.append(Entry(**_values(row, entry), sequence=int(sequence), body=body))
        for place, overtaken in zip(
            numbered.suppressed.rows, numbered.suppressed.overtaken, strict=True
        ):
            entry = batch.entries.slice(place, 1).to_pylist()[0]
            cause = SuppressedCause.OVERTAKEN if overtaken else SuppressedCause.REPEATED
            self.suppressed.append(Suppressed(**_values(row, entry), cause=cause))
        future = batch.entries.take(pa.array(within.future)).to_pylist()
        self._quarantine(row, batch.quarantined)
        self._quarantine(row, quarantine_table([refused(each, limit) for each in future]))
        self._advance(row.stream, numbered.moved)
        return Written(row.stream, row.batch_id, batch_no, now, counts)

    def _quarantine(self, row: _Batch, table: pa.Table) -> None:
        for each in table.to_pylist():
            reason = QuarantineReason(each.pop("reason"))
            self.quarantined.append(Quarantined(row.stream, row.batch_id, reason, **each))

    def _states(self, sink: "FakeSink", entries: pa.Table) -> pa.Table:
        """Return `numbering.SUBJECTS` of the subjects of entries."""
        states = []
        for name in entries["subject"].unique().to_pylist():
            number = self._subjects.setdefault(name, len(self._subjects) + 1)
            state = self._transitions.get((sink.stream, number)) if sink.suppress_repeats else None
            last_type, last_occurred_at = state or (None, None)
            states.append(
                {
                    "id": number,
                    "last_sequence": self._sequences.get(number, 0),
                    "last_type": last_type,
                    "last_occurred_at": last_occurred_at,
                }
            )
        return pa.Table.from_pylist(states, SUBJECTS)

    def _record_keys(self, entries: pa.Table, batch_no: int) -> Keys:
        fresh = np.ones(entries.num_rows, bool)
        differing = 0
        pairs = zip(entries["key"].to_pylist(), entries["content"].to_pylist(), strict=True)
        for place, (key, content) in enumerate(pairs):
            known = self._keys.setdefault(key, _Known(content, batch_no))
            fresh[place] = known.batch_no == batch_no
            differing += known.content != content
        return Keys(fresh, differing)

    def _advance(self, stream: str, moved: pa.Table) -> None:
        for subject in moved.to_pylist():
            place = (stream, subject["id"])
            self._sequences[subject["id"]] = subject["last_sequence"]
            at = subject["last_occurred_at"]
            before = self._transitions.get(place)
            newest = at if before is None else max(at, before[1])
            self._transitions[place] = (subject["last_type"], newest)

    def _compare(
        self, batch: PreparedBatch, recorded: Recorded, batch_nos: list[int], limit: datetime
    ) -> Divergence:
        """As the statement `compare_keys` of the sink."""
        within = split(batch.arrived, limit)
        columns = (within.entries[name].to_pylist() for name in ("key", "content"))
        now = dict(zip(*columns, strict=True))
        then = {
            key: known.content for key, known in self._keys.items() if known.batch_no in batch_nos
        }
        older = {key for key, known in self._keys.items() if known.batch_no < batch_nos[0]}
        return Divergence(
            rows_then=recorded.counts.rows,
            rows_now=batch.row_count,
            quarantined_then=recorded.counts.quarantined,
            quarantined_now=batch.quarantined.num_rows + len(within.future),
            only_in_ledger=_difference(then.keys() - now.keys()),
            only_in_replay=_difference(now.keys() - then.keys() - older),
            changed=_difference({key for key in then.keys() & now.keys() if then[key] != now[key]}),
        )


@dataclass(frozen=True)
class FakeSink:
    """Writes the batches of one stream to a `FakeOutbox`: `query.foreachBatch(sink)`.

    Behind Spark Connect a batch runs in another process, whose outbox is a copy: call the sink with
    a DataFrame that is no stream.
    """

    outbox: FakeOutbox
    stream: str
    select: Callable[[pa.Table], BatchInput]
    suppress_repeats: bool
    quarantine_limit: QuarantineLimit
    future_tolerance: timedelta

    def __call__(self, batch: "DataFrame | pa.Table", batch_id: int) -> Written | Replayed:
        """Write one micro-batch, a DataFrame or a table of PyArrow.

        Raises `SchemaMismatch`, `ReplayDiverged`, `TooManyRefused` and `BatchTooLarge`, and what
        `select` raises. Then nothing of the batch is written.
        """
        table = batch if isinstance(batch, pa.Table) else _collected(batch)
        return self.outbox._apply(self, prepare(selected(self.select, table)), batch_id)  # noqa: SLF001 - of the same module

    def __repr__(self) -> str:
        return f"FakeSink({self.stream!r})"


def _collected(df: "DataFrame") -> pa.Table:
    from holdfast.sink.session import collected  # noqa: PLC0415 - tables of PyArrow need no psycopg
    from holdfast.sink.transaction.staging import arrow_schema  # noqa: PLC0415

    return collected(df, arrow_schema(df))


def _of_replay(row: _Batch, digest: bytes) -> _Batch:
    return row._replace(query_id=accepted_query_id(row.query_id, digest))


def _values(row: _Batch, entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "stream": row.stream,
        "batch_id": row.batch_id,
        "subject": entry["subject"],
        "type": entry["type"],
        "key": tuple(json.loads(entry["key_text"])),
        "occurred_at": entry["occurred_at"],
        "priority": entry["priority"],
        "traceparent": entry["traceparent"],
        "data": json.loads(f"{entry['head']}0{entry['tail']}")["data"],
    }


def _difference(keys: set[str]) -> KeyDifference:
    return KeyDifference(len(keys), tuple(UUID(key) for key in sorted(keys)[:FIRST_KEYS]))
