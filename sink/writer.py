"""The writer: runs THE transaction (`sink.transaction`) until its fate is known.

A COMMIT whose answer was lost is neither "written" nor "failed". The next attempt locks the stream
and reads the ledger, which knows; only then is anything written again.
"""

import re
from collections.abc import Callable
from datetime import date
from typing import TypeVar
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sink import ledger, transaction
from sink.content import Content
from sink.contract.failpoints import failpoint
from sink.database import Timeouts, cut_after, execute, fitting, one_row, open_session, said
from sink.errors import SinkUnavailable
from sink.ledger import Counts, Replayed, Run, Written
from sink.retry import is_transient, until_done
from sink.transaction import Also

__all__ = ["Also", "Counts", "Replayed", "Timeouts", "Writer", "Written"]

_STREAM = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}", re.ASCII)
"""As ck_stream_name."""

_Result = TypeVar("_Result")


class Writer:
    """Writes the batches of one stream. Not for two threads at once.

    The connection is kept between batches and opened again when it breaks.
    """

    def __init__(
        self,
        dsn: str,
        stream: str,
        *,
        checkpoint: str | None = None,
        suppress_repeats: bool = True,
        timeouts: Timeouts | None = None,
    ) -> None:
        """Raises `ValueError` for a DSN or a name that cannot be right; nothing connects yet."""
        if not _STREAM.fullmatch(stream):
            raise ValueError(
                f"{stream!r} is not a stream name: expected 1 to 63 of a-z 0-9 _ . - , the first a"
                " letter or a digit"
            )
        try:
            conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # libpq quotes what it could not read, which may be a piece of the password.
            raise ValueError(
                "the DSN cannot be read: expected postgresql://user@host/database or"
                " 'host=... dbname=...', with special characters of a password as %XX"
            ) from None
        self.stream = stream
        self._dsn = dsn
        self._checkpoint = checkpoint
        self._suppress_repeats = suppress_repeats
        self._timeouts = timeouts or Timeouts()
        self._connection: psycopg.Connection | None = None
        self._run: Run | None = None
        self._partitions_of: date | None = None

    def check(self) -> None:
        """Connect once, without a second try, so that a wrong DSN is known before any batch.

        Raises `SinkUnavailable` and `SchemaMismatch`.
        """
        try:
            self._session()
        except psycopg.OperationalError as error:
            raise SinkUnavailable(
                f"the database did not answer: {said(error)}. Nothing was written; check the DSN"
                " and that the server runs."
            ) from error

    def read(self, work: Callable[[psycopg.Connection], _Result]) -> _Result:
        """Return what `work` finds in one read-only transaction, all of it as of one moment.

        `work` acts as the sink's role, and is called again when the transaction is tried again.
        Raises `SchemaMismatch`, `SinkUnavailable` and whatever `work` raises.
        """

        def attempt(connection: psycopg.Connection) -> _Result:
            with connection.transaction(), fitting():
                execute(connection, "read_only")
                return work(connection)

        return self._persist(attempt, lambda: "nothing was read. Start again when it is there.")

    def begin_run(self, query_id: UUID, run_id: UUID) -> int:
        """Take the stream for a run and return its epoch; every older run is fenced from here on.

        The first query id of a new stream is adopted. Raises `UnadoptedCheckpoint` for another
        one, before the epoch moves, and `SchemaMismatch` and `SinkUnavailable`.
        """

        def begin(connection: psycopg.Connection) -> int:
            with connection.transaction():
                execute(connection, "add_stream", stream=self.stream)
                found = one_row(connection, "lock_stream", stream=self.stream)
                if found["query_id"] not in (None, query_id):
                    raise transaction.unadopted(self.stream, query_id, found["query_id"])
                started = one_row(
                    connection,
                    "start_run",
                    stream=self.stream,
                    query_id=query_id,
                    run_id=run_id,
                    checkpoint=self._checkpoint,
                )
            return int(started["epoch"])

        self._partitions_of = None
        epoch = self._persist(begin, lambda: f"run {run_id} did not start; restart the query.")
        self._run = Run(self.stream, query_id, run_id, epoch)
        return epoch

    def write(
        self,
        batch_id: int,
        batch: Content,
        *,
        source_offsets: str | None = None,
        also: Also | None = None,
    ) -> Written | Replayed:
        """Write the batch with everything that belongs to it, or find that it is written.

        `also` runs inside the transaction, again in each attempt, and not for a replay. Raises
        `Fenced`, `UnadoptedCheckpoint`, `ReplayDiverged`, `SchemaMismatch`, `SinkUnavailable`, and
        whatever `also` raises; nothing of the batch is written then.
        """
        if self._run is None:
            raise RuntimeError("begin_run comes before write")
        run = self._run
        commit_unknown = False

        def attempt(connection: psycopg.Connection) -> Written | Replayed:
            nonlocal commit_unknown
            with connection.transaction():
                failpoint("S2")
                transaction.lock(connection, run, batch_id)
                recorded = ledger.read(connection, run, batch_id)
                if recorded is not None:
                    return ledger.accept(
                        connection, run, batch_id, batch, recorded, commit_unknown=commit_unknown
                    )
                commit_unknown = False
                written = transaction.write(
                    connection,
                    run,
                    batch_id,
                    batch,
                    source_offsets=source_offsets,
                    suppress_repeats=self._suppress_repeats,
                    also=also,
                )
                failpoint("S7")
                commit_unknown = True
            failpoint("S8")
            return written

        def fate() -> str:
            if commit_unknown:
                return (
                    f"COMMIT of batch {batch_id} was sent and not answered. The batch is written as"
                    " a whole or not at all; when the query restarts, the ledger decides."
                )
            return f"batch {batch_id} was not written. Spark replays it when the query restarts."

        return self._persist(attempt, fate)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _persist(
        self, work: Callable[[psycopg.Connection], _Result], fate: Callable[[], str]
    ) -> _Result:
        seconds = self._timeouts.deadline_seconds
        try:
            return until_done(lambda: self._attempt(work), seconds)
        except psycopg.Error as error:
            if not is_transient(error):
                raise
            raise SinkUnavailable(
                f"stream {self.stream!r}: the database was not there for {seconds:g} s"
                f" ({said(error)}): {fate()}"
            ) from error

    def _attempt(self, work: Callable[[psycopg.Connection], _Result]) -> _Result:
        connection = self._session()
        try:
            with cut_after(connection, self._timeouts.transaction_seconds):
                self._ensure_partitions(connection)
                return work(connection)
        finally:
            if connection.closed:
                self.close()

    def _session(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = open_session(self._dsn, self.stream, self._timeouts)
        return self._connection

    def _ensure_partitions(self, connection: psycopg.Connection) -> None:
        found = one_row(connection, "ensure_partitions", ensured=self._partitions_of)
        self._partitions_of = found["today"]
