"""The staged path: Spark's tasks stage the rows, and the driver's one transaction moves them.

Each task copies its partition into a table of the batch, under the id of its attempt, and returns a
summary with the number of its rows. Spark gives the driver one summary per partition. The
transaction moves the rows of exactly those attempts into the outbox (`StagedContent`).
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg
import pyarrow as pa
from psycopg.rows import DictRow, dict_row

from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.errors import SinkError, SinkUnavailable, Transient
from holdfast.sink.rows.batch import conflict
from holdfast.sink.rows.columns import refuse
from holdfast.sink.rows.copy_formats import COPY_ROWS, array_literal, csv, read_csv
from holdfast.sink.rows.digest import digest_of_parts, header, row_hashes
from holdfast.sink.rows.evidence import BEFORE_DATA_LENGTH
from holdfast.sink.rows.hashes import contents
from holdfast.sink.rows.nullable import nullable_schema
from holdfast.sink.rows.numbering import Numbered, Suppressed
from holdfast.sink.rows.outcome import Run
from holdfast.sink.rows.prepared import (
    ARRIVED,
    ENTRIES,
    QUARANTINED,
    QuarantinedRow,
    quarantine_table,
)
from holdfast.sink.rows.read_rows import read_rows
from holdfast.sink.transaction import write_batch
from holdfast.sink.transaction.content import Arrived, Stamp
from holdfast.sink.transaction.database import (
    Timeouts,
    cut_after,
    error_text,
    execute,
    fitting,
    one_row,
    open_session,
    statement,
    transaction,
)
from holdfast.sink.transaction.driver_path import add_quarantined
from holdfast.sink.transaction.login import Login
from holdfast.sink.transaction.retry import is_transient, persist

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

# A stage: the unlogged table in which the rows of one batch wait for its transaction.

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_UNSTAGED = (
    "This run staged the batch in part at most, and did not write it. Spark replays it when the"
    " query restarts."
)


class StageLost(Transient):
    """Rows that the tasks staged are missing, as after a crash of the server.

    Nothing is written. The batch is replayed at the next start.

    >>> issubclass(StageLost, Transient)
    True
    """


@dataclass(frozen=True, slots=True)
class Stage:
    """The table and how to reach it. It is sent to the tasks with the login.

    The table has the number that `open_stage` gave; 0 means none.
    """

    login: Login
    stream: str
    timeouts: Timeouts
    number: int = 0
    attempts_from: int = 0
    """The run's own numbers of attempts begin here. A restored database gives the number of a table
    out again, and Spark numbers the attempts of each driver from 0."""
    rules: bool = False
    """Rules of the job may reject rows; before revision 0033 the tables have no column for them."""

    def statement(self, name: str) -> bytes:
        """Return a statement of `holdfast.sink.transaction` for this table."""
        text = statement(name).replace(b"{stage}", b"holdfast.stage_%d" % self.number)
        return text.replace(b"{rule}", b", rule" if self.rules else b"")

    def execute(
        self, connection: psycopg.Connection, name: str, **values: Any
    ) -> psycopg.Cursor[DictRow]:
        """Execute a statement on this table. Raises `StageLost` where the table is missing."""
        return self.reached(
            lambda: connection.cursor(row_factory=dict_row).execute(self.statement(name), values)
        )

    def reached(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work`, which uses this table.

        Raises `StageLost` and, where the database lacks something else, `SchemaMismatch`.
        """
        try:
            return work()
        except psycopg.errors.UndefinedTable as error:
            raise self.lost("its table is missing") from error
        except psycopg.Error:
            with fitting():
                raise

    def lost(self, why: str) -> StageLost:
        """Return the error, with its cause `why`."""
        return StageLost(
            f"stream {self.stream!r}: rows that the tasks staged are missing ({why}): the"
            " server crashed, or another run took the stream. This run did not write the batch, and"
            " nothing is lost: Spark replays it when the query restarts."
        )

    def connect(self) -> psycopg.Connection:
        """Open a session. Raises `SinkUnavailable` after the deadline, and `SchemaMismatch`."""
        return self._persist(lambda: open_session(self.login, self.stream, self.timeouts))

    def work(self, task: Callable[[psycopg.Connection], _Result]) -> _Result:
        """Return the result of `task`, in a transaction of a session of its own.

        `task` is called again when the transaction is retried. Raises as `connect`.
        """

        return self._persist(lambda: self.work_once(task))

    def work_once(self, task: Callable[[psycopg.Connection], _Result]) -> _Result:
        """As `work`, without a retry."""
        with (
            open_session(self.login, self.stream, self.timeouts) as connection,
            cut_after(connection, self.timeouts.transaction_seconds),
            transaction(connection, self.timeouts),
        ):
            return task(connection)

    def _persist(self, work: Callable[[], _Result]) -> _Result:
        return persist(work, self.stream, self.timeouts.deadline_seconds, lambda: _UNSTAGED)


def open_stage(stage: Stage, run: Run, batch_id: int, schema: pa.Schema) -> Stage:
    """Create the table for a batch, and drop those of earlier batches of the stream.

    `schema` is that of the rows. Raises as `Stage.connect`.
    """

    def make(connection: psycopg.Connection) -> int:
        drop_stages_until(connection, run)
        opened = one_row(
            connection, "staging/open_stage", stream=run.stream, epoch=run.epoch, batch_id=batch_id
        )
        return int(opened["number"])

    # 62 of the 63 bits that an attempt has, so that no attempt of a run exceeds them.
    attempts_from, rules = run.run_id.int >> 66, "rejected" in schema.names
    return replace(stage, number=stage.work(make), attempts_from=attempts_from, rules=rules)


def drop_stages(stage: Stage, run: Run) -> None:
    """Drop the stream's tables, which are no longer needed; tries once and never raises.

    A table in which a late task still writes is left to the next call.
    """
    try:
        stage.work_once(lambda connection: drop_stages_until(connection, run))
    except (SinkError, psycopg.Error) as error:
        _log.warning("stream=%s: its stages were not dropped: %s", run.stream, error_text(error))


def drop_stages_until(connection: psycopg.Connection, run: Run) -> None:
    """Drop the tables of a run and of those before it, in the caller's transaction."""
    execute(
        connection,
        "staging/drop_stages",
        stream=run.stream,
        epoch=run.epoch,
        run_id=run.run_id,
    )


# What Spark's tasks do: read the rows of a partition, copy them into the stage, return a summary.
#
# A task commits one chunk at a time, so that no transaction is open while Spark computes the next
# rows. Rows of an attempt that fails, is killed or ends late are ignored: its summary is missing.

CHUNK_ROWS = 20_000
CHUNK_BYTES = 8 << 20
"""Maximum of a partition that is held as entries at once; as text it is several times as large."""

_ENTRY = [*(name for name in ENTRIES.names if name != "key_text"), "key_text", "content"]
_SUMMARY = "attempt long, row_count long, refused_count long, byte_count long"
_SUMMARY_ARROW = pa.schema(
    {name: pa.int64() for name in ("attempt", "row_count", "refused_count", "byte_count")}
)


class Summary(NamedTuple):
    """What the attempt of a task has committed to the stage."""

    attempt: int
    row_count: int
    """Entries and refused rows."""

    refused_count: int
    byte_count: int
    """Arrow bytes of the source rows."""


@dataclass(frozen=True, slots=True)
class StageRows:
    """The function for `mapInArrow`: one summary of each partition."""

    stage: Stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - the sink is read without Spark, too

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a task of Spark has a context")
        place = f"{context.partitionId()}/{context.attemptNumber()}"
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        summary = stage_rows(self.stage, context.taskAttemptId(), tables, place)
        yield pa.RecordBatch.from_pylist([summary._asdict()], _SUMMARY_ARROW)


def arrow_schema(df: "DataFrame") -> pa.Schema:
    """Return the Arrow schema in which the rows of a DataFrame are read; runs nothing.

    Its fields are nullable and its times in UTC. Raises `SchemaMismatch` for an interval, which has
    no Arrow type.
    """
    unknown: list[str] = []
    fields = [(each.name, _arrow_type(each.dataType, each.name, unknown)) for each in df.schema]
    refuse("DataFrame", unknown)
    return nullable_schema(pa.schema(fields))


def _arrow_type(type_: "DataType", path: str, unknown: list[str]) -> pa.DataType:
    """Convert a type of Spark, and add what has no Arrow type to `unknown`.

    Types that contain others are converted here: PyArrow has no list of nulls that are not
    nullable, and Spark 3.5 names the elements of a list differently.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415

    if isinstance(type_, StructType):
        return pa.struct(
            [
                (each.name, _arrow_type(each.dataType, f"{path}.{each.name}", unknown))
                for each in type_
            ]
        )
    if isinstance(type_, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(type_.elementType, f"{path}[]", unknown)))
    if isinstance(type_, MapType):
        key = _arrow_type(type_.keyType, f"{path}.key", unknown)
        return pa.map_(key, _arrow_type(type_.valueType, f"{path}.value", unknown))
    try:
        return _leaf_type(type_)
    except PySparkException:
        unknown.append(f"{path} is {type_.simpleString()}: cast it to string")
        return pa.null()


def _leaf_type(type_: "DataType") -> pa.DataType:
    from pyspark.sql.pandas import types  # noqa: PLC0415 - as above

    # Before Spark 4.2 there is no zone to choose: it is UTC.
    if "timezone" in signature(types.to_arrow_type).parameters:
        return types.to_arrow_type(type_, timezone="UTC")
    return types.to_arrow_type(type_)


def run_tasks(df: "DataFrame", stage: Stage) -> list[Summary]:
    """Stage all rows of a DataFrame, in one action; a partition without a task has no summary."""
    rows = df.mapInArrow(StageRows(stage), _SUMMARY).collect()
    return [Summary(*row) for row in rows]


def stage_rows(
    stage: Stage, attempt: int, tables: Iterable[pa.Table], place: str = "0/0"
) -> Summary:
    """Copy rows into the stage, and return once all are committed.

    `place` is the partition and the attempt number. Failpoint T1 is passed after the first chunk
    and T2 at the end, as `T1/0/0`. Raises `SinkUnavailable`, `StageLost` and `SchemaMismatch`.
    """
    attempt += stage.attempts_from
    rows = refused = size = 0
    connection: psycopg.Connection | None = None
    try:
        for table in tables:
            for chunk in _chunks(table):
                connection = connection or stage.connect()
                refused += _copy(connection, stage, attempt, chunk)
                if not rows:
                    failpoint(f"T1/{place}")
                rows += chunk.num_rows
            size += table.nbytes
    except psycopg.Error as error:
        if not is_transient(error):
            raise
        raise SinkUnavailable(
            f"stream {stage.stream!r}: a task lost the database ({error_text(error)}). Nothing of"
            " the batch was written; Spark runs the task again, or the batch."
        ) from error
    finally:
        if connection:
            connection.close()
    failpoint(f"T2/{place}")
    return Summary(attempt, rows, refused, size)


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    count = table.num_rows
    if not count:
        return
    step = max(1, min(CHUNK_ROWS, count * CHUNK_BYTES // max(table.nbytes, 1)))
    for first in range(0, count, step):
        yield table.slice(first, step)


def _copy(connection: psycopg.Connection, stage: Stage, attempt: int, chunk: pa.Table) -> int:
    """Commit a chunk to the stage; return how many of its rows are refused."""
    rows = read_rows(chunk)
    # Which row has which hash does not matter: the digest combines all hashes of a batch, sorted.
    hashes = [rf"\x{digest.hex()}" for digest in row_hashes(chunk)]
    count = rows.entries.num_rows
    entries = rows.entries.append_column("content", contents(rows.entries))
    entries = _tagged(entries.select(_ENTRY), attempt, hashes[:count])
    names = QUARANTINED.names if stage.rules else QUARANTINED.names[:-1]
    refused = _tagged(quarantine_table(rows.refused).select(names), attempt, hashes[count:])

    def copy() -> None:
        with (
            cut_after(connection, stage.timeouts.transaction_seconds),
            transaction(connection, stage.timeouts),
        ):
            for name, table in (
                ("staging/copy_stage_entries", entries),
                ("staging/copy_stage_refused", refused),
            ):
                if table.num_rows:
                    with connection.cursor().copy(stage.statement(name)) as stream:
                        for text in csv(table):
                            stream.write(text)

    stage.reached(copy)
    return len(rows.refused)


def _tagged(table: pa.Table, attempt: int, hashes: list[str]) -> pa.Table:
    # In one chunk: PyArrow writes an empty one as NUL bytes.
    return (
        table.combine_chunks()
        .add_column(0, "row_hash", pa.array(hashes, pa.string()))
        .add_column(0, "attempt", pa.repeat(pa.scalar(attempt, pa.int64()), table.num_rows))
    )


# A staged batch: `Content` whose rows are in Postgres.


@dataclass(frozen=True, slots=True)
class StagedContent:
    """The rows that the winning attempts staged.

    Its methods raise `StageLost` where rows are missing.
    """

    stage: Stage
    promised: dict[int, tuple[int, int]]
    """Rows and refused rows of each winning attempt that has rows."""

    digest: bytes

    @property
    def row_count(self) -> int:
        return sum(rows for rows, _ in self.promised.values())

    @property
    def refused_count(self) -> int:
        return sum(refused for _, refused in self.promised.values())

    @property
    def attempts(self) -> list[int]:
        return list(self.promised)

    def arrive(self, connection: psycopg.Connection) -> Arrived:
        check_promises(connection, self.stage, self.promised)
        execute(connection, "staging/create_staged")
        run = self.stage.execute
        promoted = run(connection, "staging/promote_stage", attempts=self.attempts).rowcount
        again = self.row_count - self.refused_count - promoted
        conflicts = 0
        if again:
            staged = run(
                connection, "staging/count_stage_conflicts", attempts=self.attempts
            ).fetchone()
            conflicts = staged["count"] if staged else 0
        with connection.cursor().copy(statement("staging/read_staged")) as copy:
            entries = read_csv(b"".join(copy), ARRIVED)
        return Arrived(entries, again - conflicts, self.refused_count + conflicts)

    def rows_at(self, connection: psycopg.Connection, positions: Sequence[int]) -> pa.Table:
        if not positions:
            return ENTRIES.empty_table()
        parameters = {"ordinals": list(positions), "attempts": self.attempts}
        rows = self.stage.execute(connection, "staging/show_staged", **parameters).fetchall()
        return pa.Table.from_pylist(rows, ENTRIES)

    def add_entries(self, connection: psycopg.Connection, numbered: Numbered, stamp: Stamp) -> None:
        execute(connection, "staging/create_numbered")
        middle = len(numbered.rows) // 2
        table = pa.table(
            {
                "ordinal": numbered.rows,
                "subject_id": numbered.subject_id,
                "sequence": numbered.sequence,
            }
        )
        with connection.cursor().copy(statement("staging/copy_numbered")) as copy:
            for piece in csv(table.slice(0, middle)):
                copy.write(piece)
            failpoint("S4")
            for piece in csv(table.slice(middle)):
                copy.write(piece)
        execute(
            connection,
            "staging/add_entries",
            batch_no=stamp.batch_no,
            written_at=stamp.written_at,
            traceparent=stamp.traceparent,
        )

    def add_suppressed(
        self, connection: psycopg.Connection, suppressed: Suppressed, stamp: Stamp
    ) -> None:
        if not len(suppressed.rows):
            return
        self.stage.execute(
            connection,
            "staging/suppress_staged",
            attempts=self.attempts,
            ordinals=array_literal(pa.chunked_array([suppressed.rows])),
            subject_ids=array_literal(pa.chunked_array([suppressed.subject_id])),
            overtaken=array_literal(pa.chunked_array([suppressed.overtaken])),
            batch_no=stamp.batch_no,
            at=stamp.written_at,
            traceparent=stamp.traceparent,
            before_data=BEFORE_DATA_LENGTH,
        )

    def add_quarantined(self, connection: psycopg.Connection, stamp: Stamp) -> None:
        if self.refused_count:
            self.stage.execute(
                connection,
                "staging/quarantine_stage",
                attempts=self.attempts,
                batch_no=stamp.batch_no,
                at=stamp.written_at,
            )
        for conflicts in self._conflicts(connection):
            add_quarantined(connection, quarantine_table(conflicts), stamp)

    def _conflicts(self, connection: psycopg.Connection) -> Iterator[list[QuarantinedRow]]:
        # A server-side cursor: a batch may consist of conflicts only.
        with connection.cursor("holdfast_conflicts", row_factory=dict_row) as cursor:
            cursor.execute(
                self.stage.statement("staging/read_stage_conflicts"), {"attempts": self.attempts}
            )
            while rows := cursor.fetchmany(COPY_ROWS):
                yield [conflict(row | {"key": row["key"].hex}) for row in rows]


def take_over(
    stage: Stage, summaries: Sequence[Summary], schema: pa.Schema, run: Run, batch_id: int
) -> StagedContent:
    """Return the batch of the summaries' attempts, with its digest.

    Raises `StageLost`, and `Fenced` where the cause is a newer run that owns the stream.
    """
    promised = {
        summary.attempt: (summary.row_count, summary.refused_count)
        for summary in summaries
        if summary.row_count
    }
    rows = sum(count for count, _ in promised.values())

    def combined(connection: psycopg.Connection) -> bytes:
        check_promises(connection, stage, promised)
        stage.execute(connection, "staging/analyze_stage", number=stage.number)
        hashed = hashlib.sha256()
        cursor = connection.cursor()
        # At most 256 groups, one at a time: all hashes together may be large.
        for (hashes,) in cursor.stream(
            stage.statement("staging/hash_stage"), {"attempts": list(promised)}, binary=True
        ):
            hashed.update(hashes)
        return hashed.digest()

    parts = {}
    if rows:
        try:
            parts = {"entries": (header("entries", schema, rows), stage.work(combined))}
        except StageLost:
            # A newer run drops the stages of older ones: then the error is `Fenced`.
            stage.work(lambda connection: write_batch.lock(connection, run, batch_id))
            raise
    return StagedContent(stage, promised, digest_of_parts(parts))


def check_promises(
    connection: psycopg.Connection, stage: Stage, promised: dict[int, tuple[int, int]]
) -> None:
    """Raise `StageLost` unless all rows of each attempt are in the stage."""
    if not promised:
        return
    counted = {
        row["attempt"]: (row["rows"], row["refused"])
        for row in stage.execute(connection, "staging/count_stage", attempts=list(promised))
    }
    if counted != promised:
        rows = sum(count for count, _ in promised.values())
        present = sum(count for count, _ in counted.values())
        raise stage.lost(f"{present:,} of {rows:,} rows are")
