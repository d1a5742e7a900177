"""What the ledger knows of the batches of a checkpoint."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from holdfast.sink.contract import statements
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.source_offsets import Files, without_files
from holdfast.sink.errors import SinkError
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.spark_app.checkpoint.initial import newest_batch
from holdfast.spark_app.lifecycle.failure import explain

if TYPE_CHECKING:
    import psycopg


_Result = TypeVar("_Result")


class Recorded(NamedTuple):
    """A batch in the ledger."""

    rows: int
    entries: int
    plan: str | None
    """The text of Spark's `offsets/N`; None where it was not stored."""
    files: Files
    """The files that it read from each file source; empty where they were not stored."""


class Ledger:
    """The ledger of one stream."""

    def __init__(self, sink: OutboxSink, stream: str) -> None:
        self._sink = sink
        self._stream = stream

    def written(self, query_id: UUID, oldest: int) -> dict[int, datetime]:
        """Return when each batch of a query was written, by the database's clock."""
        rows = self._rows("batches_written", query_id=query_id, oldest=oldest)
        return dict(rows)

    def after(self, query_id: UUID, batch: int) -> dict[int, Recorded]:
        """Return what the ledger has of a query's batches after one, in ascending order."""
        rows = self._rows("batches_after", query_id=query_id, after=batch)
        return {
            number: Recorded(count, entries, *_plan(stored))
            for number, count, entries, stored in rows
        }

    def plans(self, query_id: UUID, batch: int) -> dict[int, tuple[str | None, Files]]:
        """Return plan and files of a batch and of the one before it, as far as stored."""
        rows = self._rows("plans", query_id=query_id, batch=batch)
        return {number: _plan(stored) for number, stored in rows}

    def newest(self, query_id: UUID) -> int | None:
        """Return the newest batch of a query; None where the ledger has none."""
        return newest_batch(self._sink, self._stream, query_id)

    def fence(self, query_id: UUID) -> None:
        """Take the stream, so that a driver that still runs may write no other batch.

        Raises `UnadoptedCheckpoint` for a query that the stream has not adopted.
        """
        self._sink.claim(query_id)

    def owned(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work`, during which no driver can take the stream.

        Raises `Fenced` where one has since `fence`.
        """
        return self._sink.owned(work)

    def require_stopped(self) -> None:
        """Raise CommandError while another session of this stream's sink is connected."""
        name = f"holdfast sink {self._stream}"[:63]
        running = [str(pid) for (pid,) in self._rows("running", name=name)]
        if running:
            raise CommandError(
                f"a job of stream {self._stream!r} is connected to the database (server process"
                f" {', '.join(running)}), and Spark would write into the checkpoint."
                " Nothing was changed; stop the job and repeat the command.",
                code="checkpoint_in_use",
            )

    def _rows(self, file: str, **values: Any) -> list[Any]:
        def read(connection: "psycopg.Connection") -> list[Any]:
            return connection.execute(
                _statement(file), {"stream": self._stream} | values
            ).fetchall()

        return self._sink.read(read)


def _plan(stored: str | None) -> tuple[str | None, Files]:
    return (None, {}) if stored is None else without_files(stored)


@contextmanager
def ledger(dsn: str, stream: str) -> Iterator[Ledger]:
    """Connect in the sink's role; an error of the sink becomes CommandError in its words."""
    try:
        with closing(OutboxSink(dsn, stream=stream)) as sink:
            sink.check()
            yield Ledger(sink, stream)
    except ValueError as error:
        raise CommandError(
            f"{error}. Nothing was changed.", ExitCode.USAGE, code="invalid_value"
        ) from error
    except SinkError as error:
        raise CommandError(explain(error), code="sink_error") from error


def _statement(name: str) -> bytes:
    return statements.statement("holdfast.spark_app.checkpoint_manager", name)
