"""The batches that a stream has written since a savepoint, for the checkpoint that begins with it.

The new checkpoint repeats them as they were planned (`checkpoint.repeats`): batch K is batch N + K
of the savepoint's query, with the same input, and N that of the savepoint. The ledger has the plan
of each, and the files that it reads; of batches that older versions wrote, the files are in the log
of the old checkpoint alone.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote
from uuid import UUID

from pyspark.sql import SparkSession

from holdfast.sink.contract import statements
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.source_offsets import Files as SourceFiles
from holdfast.sink.contract.source_offsets import without_files
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.sink.transaction.continuation import Continuation
from holdfast.spark_app.checkpoint import repeats
from holdfast.spark_app.checkpoint.files import NO_OFFSET, CheckpointFiles
from holdfast.spark_app.input import ticks
from holdfast.spark_app.input.sources import Files, Source, Ticks
from holdfast.spark_app.savepoint import read_files
from holdfast.spark_app.savepoint.manifest import Manifest

if TYPE_CHECKING:
    import psycopg

INTERVAL: Final = "spark.sql.streaming.fileSource.log.compactInterval"
_INTERVAL_DEFAULT = "10"


class Since(NamedTuple):
    """A batch of the ledger after the savepoint's."""

    source: Continuation
    plan: str
    """The text of Spark's `offsets/N`; empty where it was not stored."""
    files: SourceFiles
    """The files that it read from each file source; empty where they were not stored."""


class Past(NamedTuple):
    """What a stream has written since a savepoint."""

    checkpoint: str | None
    """The checkpoint that the stream's newest run had."""
    batches: tuple[Since, ...]

    @property
    def newest(self) -> int | None:
        """The newest batch of the savepoint's query; None where the savepoint is the newest."""
        return self.batches[-1].source.batch_id if self.batches else None


def read_since(sink: OutboxSink, found: Manifest) -> Past:
    """Return the batches after the savepoint; raises what `OutboxSink.read` does."""
    query_id = UUID(found.query_id)
    values = {"stream": found.stream, "query_id": query_id, "after": found.batch_id}

    def read(connection: "psycopg.Connection") -> Past:
        rows = connection.execute(_statement("read_since"), values).fetchall()
        batches = (
            Since(Continuation(query_id, batch_id, digest), *without_files(plan or ""))
            for batch_id, digest, plan, _ in rows
        )
        return Past(rows[0][3] if rows else None, tuple(batches))

    return sink.read(read)


@dataclass(slots=True)
class _Log:
    """The log of one source in the new checkpoint."""

    position: int | None
    """In the old checkpoint's log; None before the first file."""
    lines: list[str] = field(default_factory=list)
    newest: int = -1

    def add(self, rows: Sequence[dict[str, Any]], interval: int) -> tuple[str, str]:
        """Add an entry; return its name and its text, as Spark writes them."""
        self.newest += 1
        added = [json.dumps({**row, "batchId": self.newest}, separators=(",", ":")) for row in rows]
        self.lines += added
        if (self.newest + 1) % interval:
            return str(self.newest), "\n".join([read_files.HEADER, *added])
        return f"{self.newest}.compact", "\n".join([read_files.HEADER, *self.lines])


class RepeatedPlans:
    """Writes the batches for a new checkpoint, in their order."""

    def __init__(
        self,
        spark: SparkSession,
        past: Past,
        found: Manifest,
        sources: Sequence[Source],
        read: Sequence[Sequence[dict[str, Any]]],
        location: str,
        partitions: int,
    ) -> None:
        """`location` is the checkpoint's.

        `read` has the files that each source had read at the savepoint.
        """
        self._spark = spark
        self._past = past
        self._found = found
        self._sources = sources
        self._location = location
        self._partitions = str(partitions)
        self._interval = int(str(spark.conf.get(INTERVAL, _INTERVAL_DEFAULT)))
        self._logs = [
            _Log(read_files.log_offset(line)) if isinstance(source, Files | Ticks) else None
            for source, line in zip(sources, found.source_lines, strict=False)
        ]
        for log, rows in zip(self._logs, read, strict=False):
            if log is not None and rows:
                log.add(rows, self._interval)
        self._old_logs: dict[int, list[dict[str, Any]]] = {}

    def texts(self) -> dict[str, str]:
        """Return the files of `checkpoint.repeats`, by name; `repeats.FILE` is the last one.

        Raises CommandError where a plan or the name of a file is not known.
        """
        texts: dict[str, str] = {}
        for number, each in enumerate(self._past.batches, start=1):
            if each.source.batch_id != self._found.batch_id + number:
                raise self._refused(f"the ledger has no batch {self._found.batch_id + number}")
            at = f"{repeats.FOLDER}/{number}"
            texts |= {f"{at}/{name}": text for name, text in self._batch(each)}
        if texts:
            texts[repeats.FILE] = repeats.to_json(len(self._past.batches))
        return texts

    def _batch(self, each: Since) -> Iterator[tuple[str, str]]:
        try:
            header, planned, *lines = each.plan.splitlines()
            described = json.loads(planned)
            conf = described["conf"]
        except (KeyError, TypeError, ValueError) as error:
            raise self._refused(
                f"the ledger has no plan of batch {each.source.batch_id}"
            ) from error
        now = []
        for number, line in enumerate(lines):
            if number >= len(self._logs) and line != NO_OFFSET:
                raise self._refused("a source was added since, so use a newer savepoint")
            log = self._logs[number] if number < len(self._logs) else None
            if log is None:
                now.append(line)
                continue
            yield from self._entry(number, log, line, each.files.get(number, []))
            now.append(NO_OFFSET if log.newest < 0 else _offset(log.newest))
        conf = {name: self._spark.conf.get(name, old) for name, old in conf.items()}
        described["conf"] = conf | {"spark.sql.shuffle.partitions": self._partitions}
        yield repeats.SOURCE, repeats.source_to_json(each.source)
        text = json.dumps(described, separators=(",", ":"))
        yield repeats.PLAN, "\n".join([header, text, *now])

    def _entry(
        self, number: int, log: _Log, line: str, recorded: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[str, str]]:
        position = read_files.log_offset(line)
        if position is None or position == log.position:
            return
        before, log.position = log.position, position
        after = -1 if before is None else before
        rows = _between(recorded, after, position)
        if {row["batchId"] for row in rows} != set(range(after + 1, position + 1)):
            rows = _between(self._old_log(number), after, position)
        rows = [{"path": row["path"], "timestamp": row["timestamp"]} for row in rows]
        if isinstance(self._sources[number], Ticks):
            names = [PurePosixPath(unquote(row["path"])).name for row in rows]
            for row, name in zip(rows, names, strict=True):
                content = ticks.from_name(name)
                if content is None:
                    raise self._refused(f"{row['path']} was written by an older Holdfast")
                row["path"] = f"{self._location}/{ticks.FOLDER}/{name}"
                yield f"{repeats.TICKS}/{name}", content
        name, text = log.add(rows, self._interval)
        yield f"{repeats.SOURCES}/{number}/{name}", text

    def _old_log(self, number: int) -> list[dict[str, Any]]:
        if number not in self._old_logs:
            lines = (each.plan.splitlines()[2:] for each in self._past.batches)
            positions = (
                read_files.log_offset(each[number]) for each in lines if number < len(each)
            )
            try:
                self._old_logs[number] = read_files.logged(
                    self._checkpoint(), number, max(filter(None, positions), default=0)
                )
            except ValueError as error:
                raise self._refused(f"the log of its source {number} is not complete") from error
        return self._old_logs[number]

    def _checkpoint(self) -> CheckpointFiles:
        where = self._past.checkpoint
        if where is None:
            raise self._refused("the ledger does not know where it is")
        old = CheckpointFiles(self._spark, where)
        if self._found.query_id not in (old.read("metadata") or ""):
            raise self._refused("it is not there")
        return old

    def _refused(self, why: str) -> CommandError:
        found, past = self._found, self._past
        return CommandError(
            f"the savepoint is of batch {found.batch_id}, and the stream {found.stream} went on to"
            f" batch {past.newest}. A checkpoint that begins there repeats the batches between with"
            " the same files, and their names are in the checkpoint"
            f" {past.checkpoint or 'that wrote them'}, of query {found.query_id}: {why}. No"
            " batch was run, and what the ledger has stands; put that checkpoint back in its place,"
            " or use a savepoint of the newest batch.",
            code="savepoint_outdated",
        )


def _between(rows: Sequence[dict[str, Any]], after: int, until: int) -> list[dict[str, Any]]:
    """Return the rows that came between two entries of a log."""
    return [row for row in rows if after < row["batchId"] <= until]


def _offset(newest: int) -> str:
    return json.dumps({"logOffset": newest}, separators=(",", ":"))


def _statement(name: str) -> bytes:
    return statements.statement("holdfast.spark_app.savepoint", name)
