"""What can go wrong in the sink, named for what the caller does next.

    SinkError
      Permanent            a restart fails in the same way: a person must act
        Fenced               a newer run owns the stream
        UnadoptedCheckpoint  the query id is not the one the stream has adopted
        ReplayDiverged       a batch id was replayed with different content
        CheckpointBehind     an older copy of the checkpoint was restored
        CheckpointReplaced   another driver has replaced a plan of this one in the checkpoint
        UnsafeCheckpoint     two drivers can lose events on the checkpoint's file system
        LedgerBehind         the database was restored to an older state
        SchemaMismatch       the DataFrame or the database does not fit this version
          NotPrimary           the server stayed read-only until the deadline
        BatchTooLarge        the batch exceeds the limits of the driver path
        TooManyRefused       more of the batch's rows were refused than the limit allows
        CompanionFailed      `also` ended the transaction or hid an error
        NotStreaming         the sink was called outside a streaming query
        AccessDenied         the server refused the login, or the DSN leads to no server
      Transient            a restart may succeed
        SinkUnavailable      the database was not reachable or not ready
        CheckpointUnreadable the checkpoint's file system did not answer

Each message says what happened, what was not lost, and what to do; the text is composed where the
error is raised. Where a command lets the job continue, or shows what stops it, it is complete and
ends the message (`tests/integration/sink/test_stops.py` runs each as printed). The examples are
run by `tests/integration/sink/test_also.py`, which defines their names.
"""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """How many keys differ in one way, and the first 20 of them in ascending order."""

    count: int = 0
    first: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """What a replay holds, compared with what the ledger recorded."""

    rows_then: int
    rows_now: int
    quarantined_then: int
    quarantined_now: int
    only_in_ledger: KeyDifference
    only_in_replay: KeyDifference
    changed: KeyDifference
    """Keys that are in both, with different content."""


class SinkError(Exception):
    """Base class of the errors that the sink raises.

    >>> try:
    ...     OutboxSink("host=/nowhere dbname=outbox", stream="payouts").check()
    ... except SinkError as error:
    ...     print("retry" if isinstance(error, Transient) else "stop")
    retry
    """

    def __str__(self) -> str:
        # The second argument, where there is one, is the advice.
        return " ".join(map(str, self.args))


class Permanent(SinkError):
    """A restart fails in the same way.

    >>> issubclass(Fenced, Permanent), issubclass(SinkUnavailable, Permanent)
    (True, False)
    """


class Transient(SinkError):
    """A restart may succeed.

    >>> issubclass(SinkUnavailable, Transient)
    True
    """


class Fenced(Permanent):
    """A newer run of the stream started; this one may no longer write.

    The newer run finds in the ledger what was written. Stop this driver: only one may run.

    >>> older = OutboxSink(dsn, stream="payouts")
    >>> older.start(query_id, first_run)
    >>> OutboxSink(dsn, stream="payouts").start(query_id, second_run)
    >>> older.apply(decisions, Identity(query_id, first_run, 0))
    Traceback (most recent call last):
    holdfast.sink.errors.Fenced: ...run ... took epoch 2 ... Stop this driver...
    """


class UnadoptedCheckpoint(Permanent):
    """The batch comes from a query id (a checkpoint) that the stream has not adopted.

    Also where another stream has the batches of the query: the sink has another name than before.
    Nothing is written. Go back to the checkpoint that the message names, or run its
    `holdfast stream adopt`; `sink.continue_from` proves that the new one continues a batch.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> sink.start(query_id, first_run)
    >>> sink.start(other_query_id, second_run)
    Traceback (most recent call last):
    holdfast.sink.errors.UnadoptedCheckpoint: ... `holdfast stream adopt payouts --query-id ...
    """


class ReplayDiverged(Permanent):
    """A batch that is already written was replayed with different content.

    What was written first stands; the new rows are kept for comparison. `holdfast batch diff`
    shows what differs, and `holdfast batch accept` lets the job write what is new.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> batch = Identity(query_id, first_run, 0)
    >>> sink.apply(decisions, batch).counts.entries
    2
    >>> sink.apply(decisions.slice(1), batch)
    Traceback (most recent call last):
    holdfast.sink.errors.ReplayDiverged: ...1 key only in the ledger...`holdfast batch accept...
    """

    def __init__(self, message: str, divergence: Divergence) -> None:
        super().__init__(message)
        self.divergence = divergence


class SchemaMismatch(Permanent):
    """The DataFrame's columns, or the database's schema, are not those of this version.

    Nothing is written by this attempt. Correct the column, or run `holdfast db upgrade`.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> sink.apply(decisions.drop_columns(["key"]), Identity(query_id, first_run, 0))
    Traceback (most recent call last):
    holdfast.sink.errors.SchemaMismatch: entries: column 'key' (array<string>) is missing...
    """


class AccessDenied(Permanent):
    """The server refused the DSN's user, password or database, or the DSN leads to no server.

    The latter is an unknown host, a certificate that does not fit, or another service at
    the port; once the sink was connected, they count as an outage. Nothing is written by this
    attempt. Correct the DSN, the password or the server's rules.

    >>> OutboxSink(f"{dsn} dbname=nowhere", stream="payouts").check()
    Traceback (most recent call last):
    holdfast.sink.errors.AccessDenied: ...refused the connection: ...Correct user, password...
    """


class NotPrimary(SchemaMismatch):
    """The server is read-only or a standby: temporarily, as in a failover, or permanently.

    Nothing is written by this attempt. Let the DSN name the primary.

    >>> OutboxSink(read_only_dsn, stream="payouts").check()
    Traceback (most recent call last):
    holdfast.sink.errors.NotPrimary: ...read-only or a standby; let the DSN name the primary...
    """


class CheckpointBehind(Permanent):
    """The ledger has batches that the checkpoint has never planned.

    An older copy of the checkpoint was restored. Nothing is written. Restore a newer copy, or
    start with a new checkpoint, which the stream then adopts.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> for number in range(3):
    ...     outcome = sink.apply(decisions, Identity(query_id, first_run, number))
    >>> restored = OutboxSink(dsn, stream="payouts", checkpoint=checkpoint_with_two_batches)
    >>> restored.start(query_id, second_run)
    Traceback (most recent call last):
    holdfast.sink.errors.CheckpointBehind: ...
    """


class CheckpointReplaced(Permanent):
    """A plan in the checkpoint is not the one that this driver has made and read.

    Another driver on the checkpoint has replaced it, or its list of files, where the file system
    lets a file of that name be replaced. It is not compared behind Spark Connect. The batch is not
    written. Stop all drivers of the stream, and go back to the batch before it.

    >>> issubclass(CheckpointReplaced, Permanent)
    True
    """


class UnsafeCheckpoint(Permanent):
    """Spark has the checkpoint on a file system on which two drivers can lose events.

    On S3 where the session does not write it by conditional create, or the store has none. Other
    object stores are refused with `ValueError` already, unless `fs.defaultFS` leads a path there.
    Nothing is written. Give Spark the options that the message names; or name a directory on a
    local disk, a shared volume or HDFS.

    >>> OutboxSink(dsn, stream="payouts", checkpoint="oss://bucket/payouts")
    Traceback (most recent call last):
    ValueError: oss://bucket/payouts is on an object store (oss), which is refused: ...
    """


class LedgerBehind(Permanent):
    """The checkpoint has committed batches, or the run has written one, that the ledger has not.

    Also where the first batch of a query in the ledger would not be its batch 0, or `first_batch`.
    An older copy of the database was restored. Nothing is written. Restore a newer one, or start
    with a new checkpoint: keys that are recorded repeat nothing.

    >>> sink = OutboxSink(dsn, stream="payouts", checkpoint=checkpoint_with_two_batches)
    >>> older = OutboxSink(dsn, stream="payouts")
    >>> written = older.apply(decisions, Identity(query_id, first_run, 0))
    >>> sink.start(query_id, second_run)
    Traceback (most recent call last):
    holdfast.sink.errors.LedgerBehind: ...
    """


class TooManyRefused(Permanent):
    """More rows of a batch were refused than the sink's `QuarantineLimit` allows.

    Nothing is written, and no row is quarantined. Correct the rows, the rule or the limit.

    >>> sink = OutboxSink(dsn, stream="payouts", quarantine_limit=QuarantineLimit(rows=0))
    >>> sink.apply(without_subjects, Identity(query_id, first_run, 0))
    Traceback (most recent call last):
    holdfast.sink.errors.TooManyRefused: ...2 of its 2 rows were refused...Nothing...was written...
    """


class CompanionFailed(Permanent):
    """`also` hid an error, ended the transaction, or failed on a connection of its own.

    Nothing of the batch is written, unless `also` committed it; the message reports that. Leave
    COMMIT and ROLLBACK to the sink, and errors to their caller.

    >>> sink = OutboxSink(
    ...     dsn, stream="payouts", also=lambda connection, table: connection.execute("ROLLBACK")
    ... )
    >>> sink.apply(decisions, Identity(query_id, first_run, 0))
    Traceback (most recent call last):
    holdfast.sink.errors.CompanionFailed: ...leave COMMIT and ROLLBACK to the sink, then restart.
    >>> sink = OutboxSink(dsn, stream="payouts", also=lambda connection, table: connection.commit())
    >>> sink.apply(decisions, Identity(query_id, second_run, 0))
    Traceback (most recent call last):
    holdfast.sink.errors.CompanionFailed: ...leave COMMIT and ROLLBACK to the sink, then restart.
    """


class BatchTooLarge(Permanent):
    """The batch holds more rows or bytes than the driver path accepts.

    Nothing is written. Set `path="staged"`, or let a batch read less.

    >>> sink = OutboxSink(dsn, stream="payouts", path="driver")
    >>> sink.apply(decisions.take([0] * 1_000_001), Identity(query_id, first_run, 0))
    Traceback (most recent call last):
    holdfast.sink.errors.BatchTooLarge: the batch has 1,000,001 rows ... set path='staged'...
    """


class NotStreaming(Permanent):
    """The sink was called outside a streaming query, where no batch has an identity.

    Nothing is written. Pass the sink to `writeStream.foreachBatch`.

    >>> OutboxSink(dsn, stream="payouts")("no DataFrame of a stream", 0)
    Traceback (most recent call last):
    holdfast.sink.errors.NotStreaming: ...Nothing was written; pass the sink to writeStream...
    """


class SinkUnavailable(Transient):
    """The database could not be reached or did not answer within the deadline.

    The batch is written whole or not at all; the next attempt reads the ledger. Start again when
    the database answers.

    >>> OutboxSink("host=/nowhere dbname=outbox", stream="payouts").check()
    Traceback (most recent call last):
    holdfast.sink.errors.SinkUnavailable: the database did not answer: ...
    """


class CheckpointUnreadable(Transient):
    """The file system of the checkpoint did not answer, so it is not compared with the ledger.

    Nothing is written. Start again when it answers.

    >>> sink = OutboxSink(dsn, stream="payouts", checkpoint=unreadable_checkpoint)
    >>> sink.start(query_id, first_run)
    Traceback (most recent call last):
    holdfast.sink.errors.CheckpointUnreadable: ...Nothing was written...
    """
