"""The writer: runs the batch transaction (`write_batch`) until its outcome is known.

A COMMIT whose answer was lost is neither "written" nor "failed". The next attempt locks the stream
and reads the ledger, which knows the outcome; only then is anything written again.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import DictRow

from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.requeue import ENDINGS, check_stream, reserved
from holdfast.sink.errors import Fenced, NotPrimary, ReplayDiverged, SinkError, SinkUnavailable
from holdfast.sink.rows.future_dated import TOLERANCE, check_tolerance
from holdfast.sink.rows.outcome import Accepted, Recorded, Replayed, Run, Written
from holdfast.sink.rows.quarantine_limit import QuarantineLimit
from holdfast.sink.transaction import (
    continuation,
    database,
    ledger,
    lineage,
    write_batch,
)
from holdfast.sink.transaction.companion import Also, BatchContext
from holdfast.sink.transaction.content import Content
from holdfast.sink.transaction.continuation import Continuation, Repeated
from holdfast.sink.transaction.database import (
    Timeouts,
    cut_after,
    error_text,
    execute,
    fitting,
    one_row,
    open_session,
)
from holdfast.sink.transaction.divergence import Comparison, accept_command, keep
from holdfast.sink.transaction.lineage import Checkpoint, Files
from holdfast.sink.transaction.login import Login
from holdfast.sink.transaction.retry import RaisedByAlso, completed, persist
from holdfast.sink.transaction.staging import drop_stages_until

_log = logging.getLogger(__name__)

_STARTS = (
    "This run has written nothing to the outbox, and what the ledger has stands. When the cause is"
    " gone, restart the query."
)

_DOORBELL_SECONDS = 2.0
"""How long a batch may wait for the optional doorbell."""

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Commit:
    """What this run knows of the COMMIT of a batch."""

    batch_id: int
    unknown: bool = False
    """It may have been sent, and the ledger has not been read since."""

    def watched(self, also: Also | None) -> Also | None:
        """Return `also` such that a connection that it loses leaves the COMMIT unknown."""
        if also is None:
            return None

        def accompany(connection: psycopg.Connection, batch: BatchContext) -> None:
            try:
                also(connection, batch)
            finally:
                # It may have sent a COMMIT itself.
                self.unknown = connection.closed

        return accompany

    def fate(self) -> str:
        """Return the outcome of a batch that could not be written."""
        if self.unknown:
            return (
                f"COMMIT of batch {self.batch_id} may have been sent, and was not answered. The"
                " batch is written as a whole or not at all; when the query restarts, the ledger"
                " decides."
            )
        return (
            f"Batch {self.batch_id} was not written by this run. Spark replays it when the query"
            " restarts."
        )


class Writer:
    """Writes the batches of one stream. Not thread-safe.

    The connection stays open between batches and is reopened when it breaks.
    """

    def __init__(
        self,
        login: Login | str,
        stream: str,
        *,
        checkpoint: str | None = None,
        first_batch: int | None = None,
        suppress_repeats: bool = False,
        quarantine_limit: QuarantineLimit | None = None,
        timeouts: Timeouts | None = None,
        doorbell: bool = True,
        future_tolerance: timedelta = TOLERANCE,
    ) -> None:
        """Raises `ValueError` for an invalid setting; does not connect.

        `first_batch` is the batch with which a query begins that ran before it got this sink.
        With `doorbell`, dispatchers that listen are notified of each written batch.
        """
        check_stream(stream)
        check_tolerance(future_tolerance)
        if first_batch is not None and (type(first_batch) is not int or first_batch < 0):
            raise ValueError(f"first_batch is {first_batch!r}: expected a number of 0 or more")
        self.stream = stream
        self._login = login if isinstance(login, Login) else Login(login)
        self._checkpoint = checkpoint
        self._first_batch = first_batch
        self.files: Files | None = lineage.local_files(checkpoint)
        """Of the checkpoint, compared with the ledger; None: it is not compared."""
        self._write = partial(
            write_batch.write,
            suppress_repeats=suppress_repeats,
            future_tolerance=future_tolerance,
            quarantine_limit=quarantine_limit or QuarantineLimit(),
        )
        self._replayed = partial(ledger.replayed, future_tolerance=future_tolerance)
        self._timeouts = timeouts or Timeouts()
        self._doorbell = doorbell
        self._connection: psycopg.Connection | None = None
        self._run: Run | None = None
        self._repeated: Repeated | None = None
        """Until the first batch of the run is written."""
        self._partitions_of: date | None = None
        self._expect_known = False
        self._newest: int | None = None
        """The newest batch of this run that the ledger had."""
        self._ownership = Ownership(stream)

    def check(self) -> None:
        """Connect once, without a retry, so that a wrong DSN is known before any batch.

        Raises `SinkUnavailable`, `AccessDenied` and `SchemaMismatch`, and `ValueError` for the name
        of a new stream that `begin_run` refuses.
        """
        try:
            with completed(lambda: _STARTS):
                self._session()
        except psycopg.OperationalError as error:
            raise SinkUnavailable(
                f"the database did not answer: {error_text(error)}. Check the DSN and that the"
                f" server runs. {_STARTS}"
            ) from error
        if self.stream.endswith(ENDINGS) and not self.read(self._streams):
            raise reserved(self.stream)

    def read(self, work: Callable[[psycopg.Connection], _Result]) -> _Result:
        """Return the result of `work`, which runs in one read-only transaction with one snapshot.

        `work` acts as the sink's role, and is called again when the transaction is retried.
        Raises `SchemaMismatch`, `SinkUnavailable` and whatever `work` raises.
        """

        def attempt(connection: psycopg.Connection) -> _Result:
            with database.transaction(connection, self._timeouts, read_only=True), fitting():
                return work(connection)

        return self._persist(attempt, lambda: "Nothing was read. Retry when it is available.")

    def continue_from(self, previous: Continuation, query_id: UUID, batch_id: int) -> None:
        """Let the stream adopt a checkpoint that continues a batch; see `continuation`.

        Raises `UnadoptedCheckpoint` where the ledger does not have that batch or the stream has
        adopted a third query id, `SchemaMismatch` and `SinkUnavailable`.
        """

        def attempt(connection: psycopg.Connection) -> None:
            with database.transaction(connection, self._timeouts):
                self._lock(connection)
                continuation.continue_from(connection, self.stream, previous, query_id, batch_id)

        self._persist(
            attempt,
            lambda: f"Repeat it to know whether query {query_id} is adopted: the ledger answers.",
        )

    def claim(self, query_id: UUID | None, *, repeated: Repeated | None = None) -> bool:
        """Take the stream for a run that begins later; see `OutboxSink.claim`."""
        # Outside the transaction: a file system that does not answer must not hold the lock.
        checkpoint = None if query_id is None else lineage.read_checkpoint(self.files, query_id)
        claim_id = uuid4()
        self._ownership.expect(claim_id)

        def attempt(connection: psycopg.Connection) -> DictRow | None:
            with database.transaction(connection, self._timeouts):
                row = self._lock(connection)
                if row is None or row["run_id"] is None:
                    return None
                if query_id is not None:
                    write_batch.require_adopted(
                        row, self.stream, query_id, checkpoint=self._checkpoint
                    )
                    self._compare(connection, query_id, claim_id, checkpoint, repeated)
                execute(connection, "batch/claim_stream", stream=self.stream, claim_id=claim_id)
            return row

        row = self._persist(attempt, lambda: _STARTS)
        self._ownership.claimed(None if row is None else claim_id)
        return row is not None and row["query_id"] is not None

    def end_run(self, run_id: UUID) -> None:
        """Take the stream from a run that still has it: its next batch is `Fenced`."""

        def attempt(connection: psycopg.Connection) -> None:
            with database.transaction(connection, self._timeouts):
                row = self._lock(connection)
                if row is not None and row["run_id"] == run_id:
                    execute(connection, "batch/claim_stream", stream=self.stream, claim_id=uuid4())

        self._persist(attempt, lambda: _STARTS)

    def owned(self, work: Callable[[], _Result], *, take_free: bool = False) -> _Result:
        """Return the result of `work`, during which no other run can take the stream.

        See `OutboxSink.owned`.
        """
        claim_id = uuid4()

        def attempt(connection: psycopg.Connection) -> _Result:
            with database.transaction(connection, self._timeouts):
                if take_free:
                    write_batch.lock_or_create(connection, self.stream)
                    self._ownership.expect(claim_id)
                row = self._lock(connection)
                if take_free and row is not None and row["run_id"] is None:
                    execute(connection, "batch/claim_stream", stream=self.stream, claim_id=claim_id)
                return work()

        return self._persist(attempt, lambda: _STARTS)

    def begin_run(
        self,
        query_id: UUID,
        run_id: UUID,
        *,
        acts_for: str | None = None,
        repeated: Repeated | None = None,
    ) -> Run:
        """Take the stream for a run; from here on every older run is fenced.

        A new stream acts for the stream `acts_for`, where one is given: they share their transition
        states. Only such a stream may have a name reserved for entries written by hand
        (`ValueError`); an existing stream of a job continues. `repeated` announces the batches of
        before that it repeats.
        The first query id of a new stream is adopted. Raises before the epoch moves:
        `UnadoptedCheckpoint` for another one, or one that another stream has batches of;
        `CheckpointBehind` or `LedgerBehind` where the checkpoint and the ledger do not match, and
        `CheckpointUnreadable`; also `Fenced` where the stream was claimed and another run has it,
        `SchemaMismatch` and `SinkUnavailable`.
        """
        # Outside the transaction: a file system that does not answer must not hold the lock.
        checkpoint = lineage.read_checkpoint(self.files, query_id)
        self._ownership.expect(run_id)

        def begin(connection: psycopg.Connection) -> Run:
            with self._transaction(connection):
                row = write_batch.take(
                    connection,
                    self.stream,
                    query_id,
                    acts_for=acts_for,
                    checkpoint=self._checkpoint,
                )
                self._ownership.require(row)
                if acts_for is None:
                    self._compare(connection, query_id, run_id, checkpoint, repeated)
                started = one_row(
                    connection,
                    "batch/start_run",
                    stream=self.stream,
                    query_id=query_id,
                    run_id=run_id,
                    claim_id=self._ownership.claim_id,
                    checkpoint=self._checkpoint,
                )
                # Of older runs: one that was killed leaves its stage, and this one may never stage.
                run = Run(self.stream, query_id, run_id, int(started["epoch"]), self._checkpoint)
                drop_stages_until(connection, run)
            return run

        self._partitions_of = None
        self._newest = None
        self._repeated = repeated
        self._run = self._persist(begin, lambda: _STARTS)
        return self._run

    def write(
        self,
        batch_id: int,
        batch: Content,
        *,
        source_offsets: str | None = None,
        replaced: SinkError | None = None,
        traceparent: str | None = None,
        also: Also | None = None,
    ) -> Written | Replayed:
        """Write the batch with everything that belongs to it, or find it in the ledger.

        `traceparent` is for entries without one. `also` runs inside the transaction, once in each
        attempt, and not for a replay. Raises `replaced` (the plan is not this run's), `Fenced`,
        `UnadoptedCheckpoint`, `ReplayDiverged`, `LedgerBehind` (a batch of this run is missing),
        `TooManyRefused`, `CompanionFailed`, `SchemaMismatch`, `AccessDenied`, `SinkUnavailable`,
        and whatever `also` raises; then nothing of the batch is written, unless `also` committed,
        or a COMMIT got no answer: then the message says that the ledger decides.
        """
        run = self._require_run()
        commit = _Commit(batch_id)

        def attempt(connection: psycopg.Connection) -> Written | Replayed:
            with self._transaction(connection):
                failpoint("S2")
                acts_for = write_batch.lock(connection, run, batch_id, replaced)
                write = partial(
                    self._write,
                    connection,
                    batch=batch,
                    acts_for=acts_for,
                    source_offsets=source_offsets,
                    traceparent=traceparent,
                    also=commit.watched(also),
                )
                recorded = self._recorded(connection, run, batch_id, acts_for)
                known = recorded and self._replayed(
                    connection, run, batch_id, batch, recorded, commit_unknown=commit.unknown
                )
                if isinstance(known, Written | Replayed):
                    return known
                commit.unknown = False
                if known is None and self._repeated and (source := self._repeated.source):
                    repeated = self._repeat(
                        connection, run, batch_id, batch, source, source_offsets, write
                    )
                    commit.unknown = True
                    return repeated
                written = write(
                    run, batch_id, expect_known=self._expect_known, accepted=known or None
                )
                failpoint("S7")
                commit.unknown = True
            failpoint("S8")
            # A recomputed stream repeats its keys for many batches, any other one never.
            self._expect_known = written.counts.duplicates > 0
            return written

        try:
            outcome = self._persist(attempt, commit.fate)
        except ReplayDiverged as error:
            self._keep(error, run)
            raise
        except RaisedByAlso as raised:
            raise raised.error from raised.error.__cause__
        self._newest = batch_id
        self._repeated = None
        if self._doorbell and isinstance(outcome, Written) and outcome.counts.entries:
            self._ring()
        return outcome

    def _require_run(self) -> Run:
        if self._run is None:
            raise RuntimeError("begin_run comes before write")
        return self._run

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _persist(
        self, work: Callable[[psycopg.Connection], _Result], fate: Callable[[], str]
    ) -> _Result:
        try:
            return persist(
                lambda: self._attempt(work), self.stream, self._timeouts.deadline_seconds, fate
            )
        except SinkUnavailable:
            self.close()
            raise

    def _attempt(self, work: Callable[[psycopg.Connection], _Result]) -> _Result:
        connection = self._session()
        try:
            with cut_after(connection, self._timeouts.transaction_seconds):
                return work(connection)
        except NotPrimary:
            # The next attempt reconnects: the address may resolve to another server by then.
            self.close()
            raise
        finally:
            if connection.closed:
                self.close()

    def _session(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = open_session(self._login, self.stream, self._timeouts)
        return self._connection

    @contextmanager
    def _transaction(self, connection: psycopg.Connection) -> Iterator[None]:
        """Run a block in a transaction in which the partitions of the coming days exist."""
        with ExitStack() as stack:
            today = stack.enter_context(database.transaction(connection, self._timeouts))
            if today != self._partitions_of:
                execute(connection, "batch/ensure_partitions")
                stack.close()
                self._partitions_of = today
                stack.enter_context(database.transaction(connection, self._timeouts))
            yield

    def _lock(self, connection: psycopg.Connection) -> DictRow | None:
        """Lock the stream and return its row; raises `Fenced` where a claim of it was lost."""
        row = execute(connection, "batch/lock_stream", stream=self.stream).fetchone()
        self._ownership.require(row)
        return row

    def _streams(self, connection: psycopg.Connection) -> list[Any]:
        return execute(connection, "batch/acts_for", stream=self.stream).fetchall()

    def _repeat(
        self,
        connection: psycopg.Connection,
        run: Run,
        batch_id: int,
        batch: Content,
        source: Continuation,
        source_offsets: str | None,
        write: Callable[..., Written],
    ) -> Replayed:
        """Record that a batch repeats one of another query; it must have the same content."""
        other = replace(run, query_id=source.query_id)
        recorded = ledger.read(connection, other, [source.batch_id]).get(source.batch_id)
        if recorded is None or recorded.digest != source.digest:
            raise lineage.unrepeatable(run.stream, batch_id, source.query_id, source.batch_id)
        # Raises where the content differs.
        known = self._replayed(
            connection, other, source.batch_id, batch, recorded, commit_unknown=False
        )
        if isinstance(known, Accepted):
            write(other, source.batch_id, expect_known=True, accepted=known)
        return write_batch.record_repeated(connection, run, batch_id, batch, source_offsets)

    def _compare(
        self,
        connection: psycopg.Connection,
        query_id: UUID,
        run_id: UUID,
        checkpoint: Checkpoint | None,
        repeated: Repeated | None,
    ) -> None:
        next_id = None if checkpoint is None else lineage.next_batch(checkpoint)
        recorded = self._newest_recorded(connection, query_id, run_id, next_id)
        if checkpoint is None:
            return
        planned = checkpoint.planned
        if recorded is not None and (planned is None or recorded > planned):
            # Another driver may have planned and written it meanwhile; under the stream's lock it
            # writes no batch that is planned afterwards.
            checkpoint = lineage.read_checkpoint(self.files, query_id)
        if checkpoint is not None:
            until = -1 if repeated is None else repeated.until
            lineage.compare(self.stream, checkpoint, recorded, repeated_until=until)

    def _newest_recorded(
        self, connection: psycopg.Connection, query_id: UUID, run_id: UUID, next_id: int | None
    ) -> int | None:
        """Return the newest batch of a query in the ledger; raises as `require_beginning`."""
        newest = one_row(
            connection,
            "batch/newest_batch",
            stream=self.stream,
            query_id=query_id,
            run_id=run_id,
        )
        recorded: int | None = newest["batch_id"]
        if recorded is None:
            other = newest["other_stream"] and (newest["other_stream"], newest["other_batch_id"])
            lineage.require_beginning(self.stream, query_id, next_id, self._first_batch, other)
        return recorded

    def _recorded(
        self, connection: psycopg.Connection, run: Run, batch_id: int, acts_for: str
    ) -> Recorded | None:
        """Return the ledger's row of a batch; None where it is new.

        Raises `LedgerBehind` for a new batch where the batch that this run wrote before it is gone,
        or the one before the run's first, and as `require_beginning`. Batches written by hand have
        no order.
        """
        newest = batch_id if self._newest is None else self._newest
        rows = ledger.read(connection, run, {batch_id, newest})
        if not rows and self._newest is None and acts_for == run.stream:
            recorded = self._newest_recorded(connection, run.query_id, run.run_id, batch_id)
            lineage.require_batch_before(run.stream, batch_id, recorded)
        if batch_id not in rows and newest not in (batch_id, *rows):
            raise lineage.forgotten(run.stream, newest, batch_id)
        return rows.get(batch_id)

    def _ring(self) -> None:
        """Notify dispatchers of the committed batch; without it they find it at their next scan."""
        try:
            connection = self._session()
            with cut_after(connection, _DOORBELL_SECONDS):
                execute(connection, "batch/doorbell")
        except (psycopg.Error, SinkError) as why:
            self.close()
            _log.warning(
                "stream=%s: the batch is written, but the doorbell could not be rung: %s",
                self.stream,
                error_text(why),
            )

    def _keep(self, error: ReplayDiverged, run: Run) -> None:
        """Record the diverged replay, in one attempt: the error itself matters more.

        Once it is recorded, the error names the command that accepts it.
        """
        difference = error.divergence
        if not isinstance(difference, Comparison):
            return

        def attempt(connection: psycopg.Connection) -> int | None:
            with database.transaction(connection, self._timeouts):
                return keep(connection, difference)

        try:
            number = self._attempt(attempt)
        except (psycopg.Error, SinkError) as why:
            _log.warning(
                "stream=%s: the replay could not be recorded: %s", self.stream, error_text(why)
            )
            return
        if number is not None:
            accept = accept_command(run.stream, difference, number, run.query_id)
            advice = (
                "Or accept the new content, and the job writes the keys that are new; this shows"
                " the difference first, and asks:"
            )
            error.args = (f"{error} {advice} `{accept}`.",)


# Whether a stream is still the writer's that claimed it, or another run has taken it since.
#
# A run that starts fences the one before, whichever of the two is right: a person replaces a driver
# on purpose. A restart is automatic, so a writer that has claimed a stream takes it only from its
# own runs.


class Ownership:
    """The runs with which a writer may have taken its stream."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._own: set[UUID | None] = set()
        self.is_claimed = False
        self.claim_id: UUID | None = None
        """The claim whose epoch the next run continues; None where the stream was free."""

    def expect(self, run_id: UUID) -> None:
        """Record a run that is about to take the stream: it may succeed without an answer."""
        self._own.add(run_id)

    def claimed(self, claim_id: UUID | None) -> None:
        """Record a claim; without an id, that no run ever had the stream."""
        self.is_claimed, self.claim_id = True, claim_id
        self._own.add(claim_id)

    def require(self, stream: Mapping[str, Any] | None) -> None:
        """Raise `Fenced` where another run has taken the claimed stream; `stream` is its row."""
        run_id = None if stream is None else stream["run_id"]
        if self.is_claimed and run_id not in self._own:
            raise Fenced(
                f"stream {self._stream!r}: run {run_id} took the stream after this driver had"
                " claimed it. Nothing is lost, and this driver no longer changes the checkpoint:"
                " the newer run replays the rest from it. This driver stops; if it is the right"
                " one, stop the other and start this one again. This names the run that has the"
                f" stream: `holdfast stream show {self._stream}`."
            )
