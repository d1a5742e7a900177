"""A stage: the unlogged table in which the rows of one batch wait for its transaction."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import psycopg
from psycopg.rows import DictRow, dict_row

from holdfast.sink.errors import SinkError, Transient
from holdfast.sink.transaction.database import (
    Timeouts,
    cut_after,
    execute,
    fitting,
    one_row,
    open_session,
    said,
    statement,
    transaction,
)
from holdfast.sink.transaction.ledger import Run
from holdfast.sink.transaction.retry import persist

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_UNSTAGED = (
    "This run staged the batch in part at most, and did not write it. Spark replays it when the"
    " query restarts."
)


class StageLost(Transient):
    """Rows that the tasks staged are missing; the batch is replayed.

    >>> issubclass(StageLost, Transient)
    True
    """


@dataclass(frozen=True, slots=True)
class Stage:
    """The table and how to reach it. It is sent to the tasks with the DSN, which its repr omits.

    The table has the number that `open_stage` gave; 0 means none.
    """

    dsn: str = field(repr=False)
    stream: str
    timeouts: Timeouts
    number: int = 0

    def statement(self, name: str) -> bytes:
        """Return a statement of `holdfast.sink.transaction` for this table."""
        return statement(name).replace(b"{stage}", b"holdfast.stage_%d" % self.number)

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
        return self._persist(lambda: open_session(self.dsn, self.stream, self.timeouts))

    def work(self, task: Callable[[psycopg.Connection], _Result]) -> _Result:
        """Return the result of `task`, in a transaction of a session of its own.

        `task` is called again when the transaction is retried. Raises as `connect`.
        """

        return self._persist(lambda: self.work_once(task))

    def work_once(self, task: Callable[[psycopg.Connection], _Result]) -> _Result:
        """As `work`, without a retry."""
        with (
            open_session(self.dsn, self.stream, self.timeouts) as connection,
            cut_after(connection, self.timeouts.transaction_seconds),
            transaction(connection, self.timeouts),
        ):
            return task(connection)

    def _persist(self, work: Callable[[], _Result]) -> _Result:
        return persist(work, self.stream, self.timeouts.deadline_seconds, lambda: _UNSTAGED)


def open_stage(stage: Stage, run: Run, batch_id: int) -> Stage:
    """Create the table for a batch, and drop those of earlier batches of the stream.

    Raises as `Stage.connect`.
    """

    def make(connection: psycopg.Connection) -> int:
        drop_stages_until(connection, run)
        opened = one_row(
            connection, "staging/open_stage", stream=run.stream, epoch=run.epoch, batch_id=batch_id
        )
        return int(opened["number"])

    return replace(stage, number=stage.work(make))


def drop_stages(stage: Stage, run: Run) -> None:
    """Drop the stream's tables, which are no longer needed; tries once and never raises.

    A table in which a late task still writes is left to the next call.
    """
    try:
        stage.work_once(lambda connection: drop_stages_until(connection, run))
    except (SinkError, psycopg.Error) as error:
        _log.warning("stream=%s: its stages were not dropped: %s", run.stream, said(error))


def drop_stages_until(connection: psycopg.Connection, run: Run) -> None:
    """Drop the tables of a run and of those before it, in the caller's transaction."""
    execute(
        connection,
        "staging/drop_stages",
        stream=run.stream,
        epoch=run.epoch,
        run_id=run.run_id,
    )
