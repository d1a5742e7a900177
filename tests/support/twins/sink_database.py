"""Each action of the sink's model through the product's own functions, on a real database.

A driver is one process of a Spark driver without Spark: it plans a batch in its checkpoint, hands
the rows over and commits it there. What it holds in memory is the product's own objects. A person
acts through the operators' verbs, under two names where a second person is needed.

The names are those of a script that a person reads: queries `c1`, runs `r1` in the order of their
starts, decisions `m_1@2 block`.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID, uuid5

import psycopg
from psycopg.rows import dict_row

import holdfast.sink.foreach_batch
from holdfast.dispatcher.operators.common.session import acting_as, operator_connection
from holdfast.dispatcher.operators.quarantine.actions import (
    Way,
    dismiss,
    entry_texts,
    put_back,
)
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.dispatcher.operators.streams.verbs import query_id_in
from holdfast.migrations.prune import prune
from holdfast.sink import BatchInput, OutboxSink
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.key import Key
from holdfast.sink.foreach_batch import Identity
from holdfast.sink.requeue import table_of
from holdfast.sink.rows.batch import prepare
from holdfast.sink.transaction import lineage
from holdfast.sink.transaction.staging import Stage, Summary, drop_stages
from tests.support.dispatch.delivery import OLD, age
from tests.support.dispatch.sender import BLOCK, RELEASE, table
from tests.support.dispatch.sender import decision as decision_row
from tests.support.job.driver import PATIENT, in_tasks
from tests.support.servers.postgres_proxy import Fault, PostgresProxy
from tests.support.twins.images import Image, Images
from tests.support.twins.pausing import Call, Killed, Paused, retries_pause
from tests.support.twins.sink import Proposal, Refused
from tests.support.twins.sink_people import OPEN, proposal_name
from tests.support.twins.sink_rows import (
    FAR,
    HAND,
    Decision,
    Observed,
    Overtaken,
    State,
    digest,
)

STREAM: Final = "payouts"
_FAR_AT: Final = datetime(9999, 12, 31, tzinfo=UTC)
_UNFIT: Final = 2**53
"""An amount without a canonical form: its row is quarantined."""

_NAMESPACE: Final = UUID("c4e7a5de-52c6-4ab0-9f6e-9d1f1f5f2b6a")
_TYPES: Final = {"block": BLOCK, "release": RELEASE}
_ACTIONS: Final = {type_: action for action, type_ in _TYPES.items()}


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
    has_staged_rows: bool = False


class SinkDatabase:
    """The database, the checkpoints, the drivers that run and the people who act."""

    def __init__(self, dsn: str, folder: Path) -> None:
        """`dsn` is of a superuser and an empty, migrated database; `folder` is for checkpoints."""
        self._dsn = dsn
        self._folder = folder
        self._closing = ExitStack()
        self._closing.enter_context(retries_pause())
        self._closing.enter_context(_pause_after_the_checkpoint_is_read())
        self._closing.enter_context(_no_last_act_of_the_killed())
        connect = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        self.db = self._closing.enter_context(connect)
        self._plain = self._closing.enter_context(psycopg.connect(dsn, autocommit=True))
        self.images = Images(self._plain)
        self._operator = self._closing.enter_context(operator_connection(dsn))
        self._empty = self.images.take()
        self.db.execute(_KEEP_STAGE)
        self._example = ExitStack()
        self.begin()

    def close(self) -> None:
        """End what runs, and close every connection."""
        self._end()
        self._closing.close()

    def begin(self) -> None:
        """Begin an example: an empty database, no driver, no checkpoint."""
        self._end()
        self.put_back(self._empty)
        self._processes: dict[str, Process] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._run_names: dict[UUID, str] = {}
        self._digests: dict[bytes, str] = {}
        self._keys: dict[UUID, str] = {}
        self._rows_by_text: dict[str, Decision] = {}
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

    def start(self, driver: str, query: str) -> Any:
        """Start a driver's process on a checkpoint: `Paused` when it has read that.

        Returns an exception where the checkpoint is refused before.
        """
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
        return self._call(process, lambda: sink.start(query_id(query), run_id))

    def begin_run(self, driver: str, lost: Fault | None = None) -> Any:
        """Let a driver that has read its checkpoint take the stream.

        Returns None, the exception, or `Paused` where the COMMIT or its answer is lost.
        """
        process = self._processes[driver]
        process.sink.check()
        assert process.call is not None
        # The first attempt makes partitions before, in a transaction of its own.
        return self._resume(driver, lost, 2 if process.call.pauses == 1 else 1)

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

        process.has_staged_rows = bool(rows)

        def run_all(stage: Stage) -> list[Summary]:
            summaries = in_tasks(made)(stage)
            Call.pause("staged")
            return summaries

        return self._call(
            process, lambda: process.sink.apply_staged(made.schema, run_all, identity)
        )

    def take_over(self, driver: str, lost: Fault | None = None) -> Any:
        """Let a driver take over what its tasks have staged; returns as `write`."""
        process = self._processes[driver]
        process.sink.check()
        # A session of its own reads the stage before, if it has rows.
        return self._resume(driver, lost, 3 if process.has_staged_rows else 1)

    def retry(self, driver: str, lost: Fault | None = None) -> Any:
        """Let a driver try again that got no answer to its COMMIT; returns as `write`."""
        self._processes[driver].sink.check()
        return self._resume(driver, lost, 1)

    def _resume(self, driver: str, lost: Fault | None, commit: int) -> Any:
        process = self._processes[driver]
        assert process.call is not None
        self._lose(lost, commit)
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
        """Lose the n-th COMMIT from now, or its answer; none without a fault."""
        self.proxy.strike(0 if fault is None else commit, fault)

    def _identity(self, process: Process, batch_id: int) -> Identity:
        return Identity(query_id(process.query), process.run_id, batch_id)

    def _table(self, rows: Sequence[Decision]) -> Any:
        made = table(*(row_of(each) for each in rows))
        self._digests[prepare(BatchInput(made)).digest] = digest(rows)
        for each in rows:
            key = Key.of(row_of(each)["key"])
            self._keys[key.digest] = each.key
            self._rows_by_text[_label(row_of(each))] = each
        return made

    # People.

    def adopt(self, query: str) -> str:
        """Let the stream adopt the checkpoint of a query."""
        folder = str(self.checkpoint(query).folder)
        row = Streams(self._operator).adopt(
            STREAM,
            query_id(query),
            "a new checkpoint",
            found_in=lambda _: query_id_in(folder),
            force=False,
        )
        return "adopted" if row["changed"] else "adopted before"

    def requeue(
        self, refused: Refused, row: Decision, *, keep_repeats: bool, is_killed: bool = False
    ) -> str:
        """Put a quarantined row back, as it is kept or else corrected.

        Returns `requeued`, `refused`, `proposed` or the code of an error; `killed` where
        `is_killed` and the entry was written.
        """
        self._table([row])
        text = None
        if row != refused.row:
            text = entry_json(row)
            self._digests[prepare(BatchInput(table_of(text))).digest] = digest([row])
        with _killed_before_the_record() if is_killed else nullcontext():
            return self._put_back(refused, text, Way(suppress_repeats=not keep_repeats))

    def approve(self, proposal: Proposal) -> str:
        """Approve a proposal, as a second person."""
        with acting_as("second"):
            Quarantine(self._operator).approve(self._proposal(proposal), "seen")
        return "approved"

    def apply(self, proposal: Proposal, *, is_killed: bool = False) -> str:
        """Do what was proposed; returns as `requeue`."""
        id_ = self._proposal(proposal)
        with _killed_before_the_record() if is_killed else nullcontext():
            return self._put_back(proposal.refused, None, Way(), id_)

    def _put_back(
        self, refused: Refused, text: str | None, way: Way, proposal: UUID | None = None
    ) -> str:
        store, number = Quarantine(self._operator), self._number(refused)
        try:
            outcome = put_back(
                store,
                self._dsn,
                [number],
                "by hand",
                lambda rows: entry_texts(rows, {number: text}),
                way,
                proposal=proposal,
            )
        except CommandError as error:
            return error.code
        except Killed:
            return "killed"
        return "proposed" if outcome.proposed else "requeued" if outcome.done else "refused"

    def _proposal(self, proposal: Proposal) -> UUID:
        """Return the id of an open proposal."""
        return self._proposals()[proposal_name(proposal)]

    def _proposals(self) -> dict[str, UUID]:
        """Return the ids of open proposals by their names."""
        refused, names = self._refused(), {}
        for row in self._rows(_PROPOSALS):
            detail, text = row["detail"], json.loads(row["detail"]["text"])
            over = detail.get("overtakes")
            proposal = Proposal(
                refused[int(row["target"].split()[1])][0],
                self._rows_by_text[_label(text)],
                not detail["suppress_repeats"],
                over and _overtaken(over),
                row["approved_at"] is not None,
            )
            names[proposal_name(proposal)] = row["id"]
        return names

    def dismiss(self, refused: Refused) -> str:
        """Close a quarantined row."""
        try:
            dismiss(Quarantine(self._operator), [self._number(refused)], "not needed")
        except CommandError as error:
            return error.code
        return "dismissed"

    def _number(self, refused: Refused) -> int:
        """Return the number of a quarantined row."""
        return next(number for number, (each, _) in self._refused().items() if each == refused)

    def _refused(self) -> dict[int, tuple[Refused, str]]:
        """Return the quarantined rows by number, with their resolutions."""
        batches, rows = self._batch_names(), {}
        alike = Counter[Refused]()
        for row in self._rows(_QUARANTINE):
            decision = self._rows_by_text[_label(json.loads(row["row"]))]
            refused = Refused(batches[row["batch_no"]], decision, row["reason"])
            nth = alike[refused]
            alike[refused] += 1
            rows[row["id"]] = (refused._replace(nth=nth), row["resolution"] or OPEN)
        return rows

    def prune(self) -> str:
        """Drop the days of everything that is written so far, months later."""
        self.db.execute("UPDATE holdfast.batch SET routed_at = written_at")
        age(self._plain, OLD)
        prune(self._dsn, days=OLD - 10, dry_run=False, reason="old")
        return "pruned"

    # What a database does.

    def take(self) -> Image:
        """Return an image of the database's rows."""
        return self.images.take()

    def put_back(self, image: Image) -> None:
        """Restore the database: it is as it was, and what drivers and checkpoints hold is not."""
        self.images.put_back(image)
        self._restore_stages()

    def _restore_stages(self) -> None:
        """Make the tables of the stages that the database knows: unlogged, so they are empty."""
        known = {row["id"] for row in self._rows("SELECT id FROM holdfast.stage")}
        tables = {row["number"] for row in self._rows(_STAGE_TABLES)}
        for number in tables | known:
            self.db.execute(_DROP_STAGE % number)
        for number in known:
            for statement in _MAKE_STAGE:
                self.db.execute(statement % number)

    def observe(self) -> Observed:
        """Return the rows of the sink's tables."""
        seen, batches, refused = Observed(), self._batch_names(), self._refused()
        queries = {query_id(each): each for each in self._checkpoints}
        for row in self._rows(_STREAMS):
            query, run = (
                queries.get(row["query_id"], HAND),
                self._run_names.get(row["run_id"], HAND),
            )
            seen.streams[row["name"]] = (query, row["epoch"], run)
        for row in self._rows(_BATCHES):
            name = batches[row["batch_no"]]
            if row["query_id"] not in queries:
                name = refused[row["batch_id"]][0].name
                batches[row["batch_no"]] = name
            seen.batches[name] = (
                self._run_names.get(row["run_id"], HAND),
                row["epoch"],
                self._digests.get(row["digest"], "other rows"),
                row["row_count"],
                row["entry_count"],
                row["duplicate_count"],
                row["differing_count"],
                row["suppressed_count"],
                row["quarantined_count"],
            )
        for row in self._rows(_ENTRIES):
            at, batch = _window(row["occurred_at"]), batches[row["batch_no"]]
            entry = (row["sequence"], self._keys[row["key"]], row["amount"], at, batch)
            seen.entries.setdefault(row["name"], []).append(entry)
        for row in self._rows(_KEYS):
            seen.keys[self._keys[row["key"]]] = batches[row["batch_no"]]
        for row in self._rows(_SUBJECTS):
            seen.sequences[row["name"]] = row["last_sequence"]
        for row in self._rows(_STATES):
            state = State(_ACTIONS[row["last_type"]], _window(row["last_occurred_at"]))
            seen.states[row["name"]] = state
        for row in self._rows(_SUPPRESSED):
            seen.suppressed[batches[row["batch_no"]], self._keys[row["key"]]] = row["cause"]
        seen.quarantine = sorted(
            (each.batch, str(each.row), each.reason, each.nth, how)
            for each, how in refused.values()
        )
        seen.stages = [(row["epoch"], row["batch_id"]) for row in self._rows(_STAGES)]
        seen.diverged = sorted(
            (batches[row["batch_no"]], self._digests[row["digest"]])
            for row in self._rows(_DIVERGED)
        )
        seen.proposals = sorted(self._proposals())
        return seen

    def _batch_names(self) -> dict[int, str]:
        """Return the names of batches by number, those that people wrote with their ids."""
        queries = {query_id(each): each for each in self._checkpoints}
        return {
            row["batch_no"]: f"{queries.get(row['query_id'], HAND)}/{row['batch_id']}"
            for row in self._rows(_BATCHES)
        }

    def _rows(self, query: str) -> list[dict[str, Any]]:
        return self.db.execute(query.encode()).fetchall()


_STREAMS = "SELECT name, query_id, epoch, run_id FROM holdfast.stream ORDER BY 1"
_BATCHES = "SELECT * FROM holdfast.batch ORDER BY batch_no"
_ENTRIES = """
    SELECT name, sequence, key, batch_no, occurred_at,
        (convert_from(body, 'UTF8')::jsonb -> 'data' ->> 'exposure_minor')::int AS amount
    FROM holdfast.entry JOIN holdfast.subject ON subject.id = subject_id ORDER BY 1, 2"""
_KEYS = "SELECT key, batch_no FROM holdfast.entry_key ORDER BY batch_no, key"
_SUBJECTS = "SELECT name, last_sequence FROM holdfast.subject ORDER BY 1"
_STATES = """
    SELECT name, last_type, last_occurred_at
    FROM holdfast.transition JOIN holdfast.subject ON subject.id = subject_id ORDER BY 1"""
_SUPPRESSED = "SELECT batch_no, key, cause::text AS cause FROM holdfast.suppressed ORDER BY 1, 2"
_QUARANTINE = """
    SELECT id, batch_no, reason::text AS reason, row, resolution::text AS resolution
    FROM holdfast.quarantine ORDER BY 1"""
_STAGES = "SELECT epoch, batch_id FROM holdfast.stage ORDER BY 1, 2"
_DIVERGED = "SELECT batch_no, digest FROM holdfast.divergence"
_PROPOSALS = """
    SELECT id, target, detail, approved_at FROM holdfast.proposal
    WHERE applied_at IS NULL AND cancelled_at IS NULL"""
_STAGE_TABLES = """
    SELECT substr(relname, 7)::bigint AS number FROM pg_class
    WHERE relnamespace = 'holdfast'::regnamespace AND relname ~ '^stage_[0-9]+$'"""
_KEEP_STAGE = """
    DO $$ BEGIN
        EXECUTE format(
            'ALTER TABLE holdfast.stage_%s RENAME TO stage_made', holdfast.open_stage('x', 0, 0));
        CREATE TABLE public.stage (LIKE holdfast.stage_made INCLUDING ALL);
        DROP TABLE holdfast.stage_made;
    END $$"""
_DROP_STAGE = b"DROP TABLE IF EXISTS holdfast.stage_%d"
_MAKE_STAGE = (
    b"CREATE UNLOGGED TABLE holdfast.stage_%d (LIKE public.stage INCLUDING ALL)",
    b"GRANT SELECT, INSERT ON holdfast.stage_%d TO holdfast_sink",
    b"ALTER TABLE holdfast.stage_%d OWNER TO holdfast_owner",
)


def query_id(query: str) -> UUID:
    """Return the id of a query by its name."""
    return uuid5(_NAMESPACE, query)


def row_of(decision: Decision) -> dict[str, Any]:
    """Return a decision as a row of `BatchInput.entries`."""
    amount = decision.amount if decision.is_fit else _UNFIT + decision.amount
    row = decision_row(decision.subject, decision.window, _TYPES[decision.action], amount)
    if decision.at != decision.window:
        row["occurred_at"] = decision_row(window=decision.at)["occurred_at"]
    return row | {"occurred_at": _FAR_AT} if decision.at == FAR else row


def _overtaken(row: Mapping[str, Any]) -> Overtaken:
    """Return what a proposal would overtake, as far as its name has it."""
    entry = None if row["sequence"] is None else (row["sequence"], row["key"])
    return Overtaken(row["type"], 0, entry, row["last_sequence"])


def _label(row: Mapping[str, Any]) -> str:
    """Return what two rows have in common if they are the same decision with the same content."""
    at = row["occurred_at"]
    window = _window(datetime.fromisoformat(at) if isinstance(at, str) else at)
    return f"{row['key']} {row['data']['exposure_minor']} {window}"


def entry_json(decision: Decision) -> str:
    """Return a decision as a person writes it."""
    return json.dumps(row_of(decision), default=lambda value: value.isoformat())


def _window(at: datetime) -> int:
    if at == _FAR_AT:
        return FAR
    noon = decision_row(window=0)["occurred_at"]
    return int((at - noon) / (decision_row(window=1)["occurred_at"] - noon))


@contextmanager
def _pause_after_the_checkpoint_is_read() -> Iterator[None]:
    """A start reads the checkpoint before its transaction, in which it may read it again."""
    read_checkpoint = lineage.read_checkpoint

    def read(*arguments: Any) -> Any:
        checkpoint, call = read_checkpoint(*arguments), Call.current()
        if call is not None and not call.pauses:
            Call.pause("checkpoint read")
        return checkpoint

    with patch.object(lineage, "read_checkpoint", read):
        yield


@contextmanager
def _killed_before_the_record() -> Iterator[None]:
    """The command of a person is killed once the sink has written the entry."""
    with patch.object(Quarantine, "resolve", side_effect=Killed):
        yield


@contextmanager
def _no_last_act_of_the_killed() -> Iterator[None]:
    """A killed driver leaves its stage: its `finally` does not run."""

    def drop_unless_killed(*arguments: Any) -> None:
        call = Call.current()
        if call is None or not call.is_killed:
            drop_stages(*arguments)

    with patch.object(holdfast.sink.foreach_batch, "drop_stages", drop_unless_killed):
        yield
