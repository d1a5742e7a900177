"""Each action of the sink's model through the product's own functions, on a real database.

A driver is one process of a Spark driver without Spark: it plans a batch in its checkpoint, hands
the rows over and commits it there. What it holds in memory is the product's own objects. A person
acts through the operators' verbs, under two names where a second person is needed.

The names are those of a script that a person reads: queries `q1`, runs `r1` in the order of their
starts, decisions `m_1@2 block`.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID, uuid5

import psycopg
from psycopg.rows import dict_row

import holdfast.sink.foreach_batch
from holdfast.dispatcher.operators.common.session import acting_as, operator_connection
from holdfast.dispatcher.operators.quarantine.actions import Way, entry_texts, put_back
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.dispatcher.operators.streams.verbs import query_id_in
from holdfast.dispatcher.operators.suppressed.rules import new_key_of
from holdfast.dispatcher.operators.suppressed.store import SuppressedDecisions
from holdfast.dispatcher.operators.suppressed.verbs import write_suppressed
from holdfast.sink import BatchInput, OutboxSink
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.key import Key
from holdfast.sink.foreach_batch import Identity
from holdfast.sink.rows.batch import prepare
from holdfast.sink.transaction.staging import Stage, Summary, drop_stages
from tests.support.dispatch.sender import BLOCK, RELEASE, decision, table
from tests.support.job.driver import PATIENT, in_tasks
from tests.support.servers.postgres_proxy import Fault, PostgresProxy
from tests.support.twins.images import Image, Images
from tests.support.twins.pausing import Call, Paused, retries_pause

STREAM: Final = "payouts"
FAR: Final = 9
"""The window of a decision that is dated beyond the database's clock."""

_FAR_AT: Final = datetime(9999, 12, 31, tzinfo=UTC)
_UNFIT: Final = 2**53
"""An amount without a canonical form: its row is quarantined."""

_NAMESPACE: Final = UUID("c4e7a5de-52c6-4ab0-9f6e-9d1f1f5f2b6a")
_TYPES: Final = {"block": BLOCK, "release": RELEASE}
_ACTIONS: Final = {type_: action for action, type_ in _TYPES.items()}


@dataclass(frozen=True, order=True)
class Decision:
    """One row of a batch. Its key is subject, window and action; `amount` is its content."""

    subject: str
    window: int
    action: str
    amount: int = 1
    is_fit: bool = True

    def __str__(self) -> str:
        content = "unfit" if not self.is_fit else "" if self.amount == 1 else f"x{self.amount}"
        return f"{self.subject}@{self.window} {self.action} {content}".rstrip()

    @property
    def key(self) -> str:
        """Its key by name."""
        return f"{self.subject}@{self.window} {self.action}"

    def row(self) -> dict[str, Any]:
        """Return it as a row of `BatchInput.entries`."""
        amount = self.amount if self.is_fit else _UNFIT
        row = decision(self.subject, self.window, _TYPES[self.action], amount)
        return row | {"occurred_at": _FAR_AT} if self.window == FAR else row


@dataclass
class Checkpoint:
    """The files of a checkpoint, as Spark keeps them."""

    folder: Path
    query_id: UUID

    def put_back(self, planned: int, committed: int) -> None:
        """Make it one whose newest planned and committed batches are these; -1: none."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name, newest in (("offsets", planned), ("commits", committed)):
            (self.folder / name).mkdir(parents=True)
            for batch_id in range(newest + 1):
                self._write(name, batch_id)
        (self.folder / "metadata").write_text(f'{{"id":"{self.query_id}"}}')

    def plan(self, batch_id: int) -> None:
        """Record what a batch reads, before it runs."""
        self._write("offsets", batch_id)

    def commit(self, batch_id: int) -> None:
        """Record that the sink returned from a batch."""
        self._write("commits", batch_id)

    def _write(self, name: str, batch_id: int) -> None:
        (self.folder / name / str(batch_id)).write_text("v1\n{}\n-")


@dataclass
class Process:
    """A driver that runs."""

    sink: OutboxSink
    query: str
    run_id: UUID
    call: Call | None = None


@dataclass
class Observed:
    """The rows of the sink's tables, by names."""

    streams: dict[str, tuple[str | None, int, str | None]] = field(default_factory=dict)
    """Adopted query, epoch and run."""
    batches: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """By `stream/query/id`: run, epoch, rows by their digest, and the counts of rows, entries,
    duplicates, differing, suppressed, quarantined."""
    entries: dict[str, list[tuple[str, int, str]]] = field(default_factory=dict)
    """By subject, in the order of their sequence, which has no gap: key, amount and batch."""
    keys: dict[str, str] = field(default_factory=dict)
    """The batch that recorded each key."""
    transitions: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    """By stream and subject: last action and window."""
    sequences: dict[str, int] = field(default_factory=dict)
    """The last of each subject."""
    suppressed: dict[tuple[str, str], str] = field(default_factory=dict)
    """By batch and key: the cause."""
    quarantine: list[tuple[int, str, str, str | None]] = field(default_factory=list)
    """Number, batch, reason and resolution."""
    stages: list[tuple[str, int, int]] = field(default_factory=list)
    """Stream, epoch and batch id of each."""


class SinkDatabase:
    """The database, the checkpoints, the drivers that run and the people who act."""

    def __init__(self, dsn: str, folder: Path) -> None:
        """`dsn` is of a superuser and an empty, migrated database; `folder` is for checkpoints."""
        self._dsn = dsn
        self._folder = folder
        self._closing = ExitStack()
        self._closing.enter_context(retries_pause())
        self._closing.enter_context(_no_last_act_of_the_killed())
        connect = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        self.db = self._closing.enter_context(connect)
        plain = self._closing.enter_context(psycopg.connect(dsn, autocommit=True))
        self.images = Images(plain)
        self._operator = self._closing.enter_context(operator_connection(dsn))
        self._empty = self.images.take()
        self._example = ExitStack()
        self.begin()

    def close(self) -> None:
        """End what runs, and close every connection."""
        self._end()
        self._closing.close()

    def begin(self) -> None:
        """Begin an example: an empty database, no driver, no checkpoint."""
        self._end()
        self.images.put_back(self._empty)
        self._processes: dict[str, Process] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._run_names: dict[UUID, str] = {}
        self._digests: dict[bytes, str] = {}
        self._keys: dict[UUID, str] = {}
        self.proxy = self._example.enter_context(PostgresProxy(self._dsn, Fault.ANSWER_LOST))

    def _end(self) -> None:
        for name in list(getattr(self, "_processes", {})):
            self.kill(name)
        self._example.close()

    # Drivers and checkpoints.

    def checkpoint(self, query: str) -> Checkpoint:
        """Return the checkpoint of a query; it is new, without a batch, where there is none."""
        if query not in self._checkpoints:
            made = Checkpoint(self._folder / query, query_id(query))
            made.put_back(-1, -1)
            self._checkpoints[query] = made
        return self._checkpoints[query]

    def start(self, driver: str, query: str, lost: Fault | None = None) -> Any:
        """Start a driver's process on a checkpoint, in place of the one before.

        Returns None, the exception, or `Paused` where the COMMIT or its answer is lost.
        """
        self.kill(driver)
        checkpoint = self.checkpoint(query)
        name = f"r{len(self._run_names) + 1}"
        run_id = uuid5(_NAMESPACE, name)
        self._run_names[run_id] = name
        sink = OutboxSink(
            self.proxy.dsn,
            stream=STREAM,
            checkpoint=str(checkpoint.folder),
            suppress_repeats=True,
            timeouts=PATIENT,
        )
        process = self._processes[driver] = Process(sink, query, run_id)
        sink.check()
        # A start makes partitions before, in a transaction of its own.
        self._lose(lost, 2)
        outcome = self._call(process, lambda: sink.start(query_id(query), run_id))
        if isinstance(outcome, Exception):
            self.kill(driver)
        return outcome

    def kill(self, driver: str) -> None:
        """Kill a driver's process, if it runs."""
        process = self._processes.pop(driver, None)
        if process is None:
            return
        if process.call is not None:
            process.call.kill()
        process.sink.close()

    def write(
        self, driver: str, batch_id: int, rows: Sequence[Decision], lost: Fault | None = None
    ) -> Any:
        """Hand a batch over on the driver path.

        Returns `Written`, `Replayed`, the exception, or `Paused` where the COMMIT or its answer is
        lost.
        """
        process = self._processes[driver]
        process.sink.check()
        self._lose(lost, 1)
        made, identity = self._table(rows), self._identity(process, batch_id)
        return self._call(process, lambda: process.sink.apply(made, identity))

    def stage(self, driver: str, batch_id: int, rows: Sequence[Decision]) -> Any:
        """Let tasks stage a batch; `Paused` before the driver takes it over, or an exception."""
        process = self._processes[driver]
        made, identity = self._table(rows), self._identity(process, batch_id)

        def run_all(stage: Stage) -> list[Summary]:
            summaries = in_tasks(made)(stage)
            Call.pause("staged")
            return summaries

        return self._call(
            process, lambda: process.sink.apply_staged(made.schema, run_all, identity)
        )

    def resume(self, driver: str, lost: Fault | None = None) -> Any:
        """Let a paused driver go on; returns as `write`."""
        process = self._processes[driver]
        assert process.call is not None
        if lost is not None:
            process.sink.check()
            # Two transactions look at the stage before.
            self._lose(lost, 2)
        outcome = process.call.resume()
        if not isinstance(outcome, Paused):
            process.call = None
        return outcome

    def _call(self, process: Process, work: Callable[[], Any]) -> Any:
        call = Call(work)
        outcome = call.resume()
        process.call = call if isinstance(outcome, Paused) else None
        return outcome

    def _lose(self, fault: Fault | None, commit: int) -> None:
        """Lose the n-th COMMIT from now, or its answer."""
        if fault is not None:
            self.proxy.struck.clear()
            self.proxy.strike(commit, fault)

    def _identity(self, process: Process, batch_id: int) -> Identity:
        return Identity(query_id(process.query), process.run_id, batch_id)

    def _table(self, rows: Sequence[Decision]) -> Any:
        made = table(*(each.row() for each in rows))
        self._digests[prepare(BatchInput(made)).digest] = content(rows)
        for each in rows:
            key = Key.of(each.row()["key"])
            self._keys[key.digest] = each.key
            self._keys[new_key_of(key).digest] = f"late {each.key}"
        return made

    # People.

    def adopt(self, query: str) -> Any:
        """Let the stream adopt the checkpoint of a query; returns whether it changed anything."""
        folder = str(self.checkpoint(query).folder)
        try:
            row = Streams(self._operator).adopt(
                STREAM,
                query_id(query),
                "a new checkpoint",
                found_in=lambda _: query_id_in(folder),
                force=False,
            )
        except CommandError as error:
            return error
        return row["changed"]

    def requeue(self, number: int, corrected: Decision | None, *, keep_repeats: bool) -> Any:
        """Put a quarantined row back; returns the outcome of `put_back`, or the exception.

        What needs a second person gets one at once: the proposal is approved and applied.
        """
        store = Quarantine(self._operator)
        text = None if corrected is None else entry_json(corrected)
        way = Way(suppress_repeats=not keep_repeats)

        def put(proposal: UUID | None = None) -> Any:
            return put_back(
                store,
                self._dsn,
                [number],
                "by hand",
                lambda rows: entry_texts(rows, {number: text}),
                way,
                proposal=proposal,
            )

        try:
            outcome = put()
            for each in outcome.proposed:
                with acting_as("second"):
                    store.approve(each["proposal"], "seen")
                outcome = put(each["proposal"])
        except CommandError as error:
            return error
        return outcome

    def write_late(self, key: Sequence[str]) -> Any:
        """Write an overtaken decision after all, by two persons; returns its new key."""
        store = SuppressedDecisions(self._operator)
        old = Key.of(key)
        try:
            planned = write_suppressed(
                store, key=old, despite_later=True, reason="late", dsn=self._dsn
            )
            with acting_as("second"):
                Quarantine(self._operator).approve(planned["proposal"], "seen")
            written = write_suppressed(
                store, key=old, proposal=planned["proposal"], reason="late", dsn=self._dsn
            )
        except CommandError as error:
            return error
        return written["new_key"]

    # What a database does.

    def take(self) -> Image:
        """Return an image of the database's rows."""
        return self.images.take()

    def put_back(self, image: Image) -> None:
        """Restore the database: it is as it was, and what drivers and checkpoints hold is not."""
        self.images.put_back(image)

    def observe(self) -> Observed:
        """Return the rows of the sink's tables."""
        seen = Observed()
        names = {query_id(each): each for each in self._checkpoints}
        for row in self._rows(_STREAMS):
            query, run = names.get(row["query_id"]), self._run_names.get(row["run_id"])
            seen.streams[row["name"]] = (query, row["epoch"], run)
        batches = {None: "-"}
        for row in self._rows(_BATCHES):
            query = names.get(row["query_id"], "hand")
            name = f"{row['stream']}/{query}/{row['batch_id']}"
            batches[row["batch_no"]] = name
            counts = ("row", "entry", "duplicate", "differing", "suppressed", "quarantined")
            seen.batches[name] = (
                self._run_names.get(row["run_id"], "hand"),
                row["epoch"],
                self._digests.get(row["digest"], "other rows"),
                *(row[f"{each}_count"] for each in counts),
            )
        for row in self._rows(_ENTRIES):
            of = seen.entries.setdefault(row["name"], [])
            of.append((self._keys[row["key"]], row["amount"], batches[row["batch_no"]]))
            assert row["sequence"] == len(of) + row["skipped"], f"a sequence gap: {row}"
        for row in self._rows(_KEYS):
            seen.keys[self._keys[row["key"]]] = batches[row["batch_no"]]
        for row in self._rows(_SUBJECTS):
            seen.sequences[row["name"]] = row["last_sequence"]
        for row in self._rows(_TRANSITIONS):
            state = (_ACTIONS[row["last_type"]], _window(row["last_occurred_at"]))
            seen.transitions[row["stream"], row["name"]] = state
        for row in self._rows(_SUPPRESSED):
            seen.suppressed[batches[row["batch_no"]], self._keys[row["key"]]] = row["cause"]
        for row in self._rows(_QUARANTINE):
            values = (row["id"], batches[row["batch_no"]], row["reason"], row["resolution"])
            seen.quarantine.append(values)
        seen.stages = [
            (row["stream"], row["epoch"], row["batch_id"]) for row in self._rows(_STAGES)
        ]
        return seen

    def _rows(self, query: str) -> list[dict[str, Any]]:
        return self.db.execute(query.encode()).fetchall()


_STREAMS = "SELECT name, query_id, epoch, run_id FROM holdfast.stream ORDER BY 1"
_BATCHES = "SELECT * FROM holdfast.batch ORDER BY batch_no"
_ENTRIES = """
    SELECT name, sequence, key, batch_no,
        (convert_from(body, 'UTF8')::jsonb -> 'data' ->> 'exposure_minor')::int AS amount,
        min(sequence) OVER (PARTITION BY subject_id) - 1 AS skipped
    FROM holdfast.entry JOIN holdfast.subject ON subject.id = subject_id ORDER BY 1, 2"""
_KEYS = "SELECT key, batch_no FROM holdfast.entry_key ORDER BY batch_no, key"
_SUBJECTS = "SELECT name, last_sequence FROM holdfast.subject ORDER BY 1"
_TRANSITIONS = """
    SELECT stream, name, last_type, last_occurred_at
    FROM holdfast.transition JOIN holdfast.subject ON subject.id = subject_id ORDER BY 1, 2"""
_SUPPRESSED = "SELECT batch_no, key, cause::text AS cause FROM holdfast.suppressed ORDER BY 1, 2"
_QUARANTINE = """
    SELECT id, batch_no, reason::text AS reason, resolution::text AS resolution
    FROM holdfast.quarantine ORDER BY 1"""
_STAGES = "SELECT stream, epoch, batch_id FROM holdfast.stage ORDER BY 1, 2, 3"


def query_id(query: str) -> UUID:
    """Return the id of a query by its name."""
    return uuid5(_NAMESPACE, query)


def content(rows: Sequence[Decision]) -> str:
    """Return the content of a batch: its rows in any order."""
    return ", ".join(
        f"{count} * {row}" if count > 1 else str(row)
        for row, count in sorted(Counter(rows).items())
    )


def entry_json(decision: Decision) -> str:
    """Return a decision as a person writes it."""
    return json.dumps(decision.row(), default=lambda value: value.isoformat())


def _window(at: datetime) -> int:
    if at == _FAR_AT:
        return FAR
    noon = decision(window=0)["occurred_at"]
    return int((at - noon) / (decision(window=1)["occurred_at"] - noon))


@contextmanager
def _no_last_act_of_the_killed() -> Iterator[None]:
    """A killed driver leaves its stage: its `finally` does not run."""

    def drop_unless_killed(*arguments: Any) -> None:
        call = Call.current()
        if call is None or not call.is_killed:
            drop_stages(*arguments)

    with patch.object(holdfast.sink.foreach_batch, "drop_stages", drop_unless_killed):
        yield
