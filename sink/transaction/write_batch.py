"""The batch transaction, in order. Every function here runs inside it, on the caller's connection.

    lock the stream -> fence -> ledger -> lock subjects -> record keys -> number -> ledger row
    -> entries -> subjects -> suppressed -> quarantine -> `also` -> (the caller commits)

Locks are taken in one order everywhere (the stream, then subjects by name, then keys by value), so
two streams that decide about the same subjects wait for each other and never deadlock.
"""

import logging
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.rows import DictRow

from holdfast.sink.contract.checkpoint import local_folder
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.requeue import ENDINGS, reserved
from holdfast.sink.contract.shell import shell_word
from holdfast.sink.errors import Fenced, SinkError, UnadoptedCheckpoint
from holdfast.sink.rows.copy_formats import (
    HEADER,
    TRAILER,
    array_literal,
    one_chunk,
    read_csv,
    rows,
    uuids,
)
from holdfast.sink.rows.future_dated import split
from holdfast.sink.rows.numbering import SUBJECTS, Numbered
from holdfast.sink.rows.outcome import Accepted, Counts, Keys, Replayed, Run, Written, judge
from holdfast.sink.rows.quarantine_limit import QuarantineLimit
from holdfast.sink.transaction import future_dated
from holdfast.sink.transaction.companion import Also, BatchContext, accompany
from holdfast.sink.transaction.content import Content, Stamp
from holdfast.sink.transaction.database import execute, fitting, one_row, statement
from holdfast.sink.transaction.driver_path import add_quarantined

_log = logging.getLogger(__name__)


def take(
    connection: psycopg.Connection,
    stream: str,
    query_id: UUID,
    *,
    acts_for: str | None,
    checkpoint: str | None,
) -> DictRow:
    """Lock the stream for a new run, and create it where there is none; see `Writer.begin_run`."""
    row = lock_or_create(connection, stream, acts_for)
    require_adopted(row, stream, query_id, acts_for=acts_for, checkpoint=checkpoint)
    return row


def lock_or_create(
    connection: psycopg.Connection, stream: str, acts_for: str | None = None
) -> DictRow:
    """Lock the row of a stream, which is new where there was none, and return it."""
    # A row that was waited for may have got another name meanwhile: then there is none again.
    while (row := execute(connection, "batch/lock_stream", stream=stream).fetchone()) is None:
        if acts_for is not None:
            _keep_name(connection, acts_for)
        made = execute(connection, "batch/add_stream", stream=stream, acts_for=acts_for).rowcount
        if made and acts_for is None and stream.endswith(ENDINGS):
            raise reserved(stream)
        # Read after the row is made: a rename that was under way then has ended.
        if made and (name := _name_now(connection, stream)) is not None:
            raise _renamed(stream, name)
    return row


def _keep_name(connection: psycopg.Connection, stream: str) -> None:
    """Let no rename of a stream commit before this transaction; it has seen those before."""
    if execute(connection, "batch/keep_name", stream=stream).fetchone() is not None:
        return
    name = _name_now(connection, stream)
    is_called = "is unknown" if name is None else f"is called {name!r} now"
    raise UnadoptedCheckpoint(
        f"stream {stream!r}, for which this would be written by hand, {is_called}. Nothing was"
        " written: repeat the command, which reads the name again."
    )


def _name_now(connection: psycopg.Connection, former: str) -> str | None:
    row = execute(connection, "batch/renamed_to", stream=former).fetchone()
    return None if row is None else row["name"]


def require_adopted(
    row: DictRow,
    stream: str,
    query_id: UUID,
    *,
    acts_for: str | None = None,
    checkpoint: str | None,
) -> None:
    """Raise `UnadoptedCheckpoint` where a locked stream has adopted another query."""
    if row["query_id"] in (None, query_id):
        return
    if acts_for is not None:
        raise UnadoptedCheckpoint(
            f"stream {stream!r}, the name for what people write by hand, is a job's own (query"
            f" {row['query_id']}). Nothing was written. Leave the stream to that job, and let the"
            f" job of {acts_for!r} write the entry from its source."
        )
    if row["acts_for"] != stream:
        raise UnadoptedCheckpoint(
            f"stream {stream!r} holds what people wrote by hand for {row['acts_for']!r}. Nothing"
            " was written. Give the sink a name of its own and start again."
        )
    raise unadopted(stream, query_id, row["query_id"], checkpoint)


def _renamed(stream: str, name: str) -> UnadoptedCheckpoint:
    return UnadoptedCheckpoint(
        f"stream {stream!r} is called {name!r} now. Nothing was written: under the old name the"
        " sink does not know the last transition of each subject. Start again with the stream"
        f" {name!r}; or give it its old name back: `holdfast stream rename {name} {stream} --reason"
        " TEXT`."
    )


def lock(
    connection: psycopg.Connection, run: Run, batch_id: int, replaced: SinkError | None = None
) -> str:
    """Lock the stream; raises `Fenced` or `UnadoptedCheckpoint` where this run may not write.

    Then `replaced`, which is for a run that may: an older one is told that it is fenced.
    Returns the stream whose transition states it uses: its own, or the one that it acts for.
    """
    row = execute(connection, "batch/lock_stream", stream=run.stream).fetchone()
    # The epoch is not enough: a failover that lost the start of a run gives its epoch out again.
    if row is None or (row["epoch"], row["run_id"]) != (run.epoch, run.run_id):
        gone = "the stream is gone: renamed, or of a database that was put back"
        newest = gone if row is None else _newest(row)
        verb = "list" if row is None else f"show {run.stream}"
        raise Fenced(
            f"stream {run.stream!r}: run {run.run_id} (epoch {run.epoch}) may not write batch"
            f" {batch_id}: {newest}. Nothing is lost: the newer run finds in the ledger what was"
            " written and replays the rest from the checkpoint. Stop this driver; if it is the"
            " right one, stop the other and restart this one. This names the run that has the"
            f" stream: `holdfast stream {verb}`."
        )
    if row["query_id"] != run.query_id:
        # An attempt before this one may have sent the batch's COMMIT.
        stands = "What the ledger has stands."
        raise unadopted(run.stream, run.query_id, row["query_id"], run.checkpoint, stands)
    if replaced is not None:
        raise replaced
    acts_for: str = row["acts_for"]
    return acts_for


def unadopted(
    stream: str,
    query_id: UUID,
    adopted: UUID,
    checkpoint: str | None = None,
    stands: str = "Nothing was written.",
) -> UnadoptedCheckpoint:
    """Return the error of a query id that is not adopted, and how to adopt it."""
    is_local = local_folder(checkpoint) is not None
    proof = f"--checkpoint {shell_word(checkpoint)}" if checkpoint and is_local else "--force"
    this = "this checkpoint" if checkpoint is None else f"the checkpoint {shell_word(checkpoint)}"
    return UnadoptedCheckpoint(
        f"stream {stream!r} has adopted query {adopted}, but {this} is query {query_id}."
        f" {stands} If the checkpoint was moved or lost by mistake, restart from the"
        " adopted one. If the new one is meant, let the stream adopt it"
        + (" (on a machine that cannot read it, with --force)" if is_local else "")
        + " and restart; keys that are recorded already repeat nothing:"
        f" `holdfast stream adopt {stream} --query-id {query_id} {proof} --reason TEXT`."
    )


def write(
    connection: psycopg.Connection,
    run: Run,
    batch_id: int,
    batch: Content,
    *,
    acts_for: str,
    source_offsets: str | None,
    suppress_repeats: bool,
    future_tolerance: timedelta,
    quarantine_limit: QuarantineLimit,
    traceparent: str | None,
    expect_known: bool,
    also: Also | None,
    accepted: Accepted | None = None,
) -> Written:
    """Write a batch that the ledger does not have. The stream is locked; `acts_for` is `lock`'s.

    `expect_known` is a hint that keys are known already; a wrong hint only costs time. With
    `accepted` it is that replay: new keys are written, what was sent under the others stays.
    Raises `TooManyRefused`, and what `accompany` raises.
    """
    arrived = batch.arrive(connection)
    limit = accepted.limit if accepted else future_dated.latest(connection, future_tolerance)
    within = split(arrived.entries, limit)
    entries, _, beyond = within
    quarantined = arrived.quarantined + len(beyond)
    quarantine_limit.check(f"stream {run.stream!r}: batch {batch_id}", quarantined, batch.row_count)
    locked = lock_subjects(connection, entries["subject"].unique())
    if suppress_repeats:
        locked = with_transitions(connection, locked, acts_for)
    reserved = one_row(connection, "batch/reserve_batch", last_created_at=locked.newest)
    stamp = Stamp(reserved["batch_no"], reserved["written_at"], traceparent)
    keys = add_keys(connection, entries, stamp.batch_no, expect_known=expect_known)
    numbered, counts = judge(
        within,
        locked.subjects,
        keys,
        row_count=batch.row_count,
        duplicates=arrived.duplicates,
        quarantined=quarantined,
        suppress=suppress_repeats,
    )
    _report_overtaken(run.stream, batch_id, numbered)
    if suppress_repeats and keys.differing:
        _report_differing(run.stream, batch_id, keys.differing)
    recorded = accepted.run if accepted else run
    _record(connection, recorded, batch_id, batch.digest, counts, stamp, source_offsets)
    failpoint("S3")
    batch.add_entries(connection, numbered, stamp)
    failpoint("S5")
    advance_subjects(connection, numbered.moved, acts_for, stamp)
    batch.add_suppressed(connection, numbered.suppressed, stamp)
    batch.add_quarantined(connection, stamp)
    for refused in future_dated.quarantined(connection, batch, beyond, limit):
        add_quarantined(connection, refused, stamp)
    failpoint("S6")
    if also is not None:
        context = BatchContext(
            *(run.stream, run.query_id, run.run_id, run.epoch, batch_id, stamp.batch_no, counts)
        )
        accompany(connection, context, reserved["transaction_id"], also)
    return Written(run.stream, batch_id, stamp.batch_no, stamp.written_at, counts)


def record_repeated(
    connection: psycopg.Connection,
    run: Run,
    batch_id: int,
    batch: Content,
    source_offsets: str | None,
) -> Replayed:
    """Record a batch that repeats one of another query: all of its rows are in the outbox.

    The caller has compared their contents, also the refused rows: nothing but the ledger's row is
    written.
    """
    reserved = one_row(connection, "batch/reserve_batch", last_created_at=None)
    stamp = Stamp(reserved["batch_no"], reserved["written_at"], None)
    counts = Counts(batch.row_count, 0, batch.row_count, 0, 0, 0)
    _record(connection, run, batch_id, batch.digest, counts, stamp, source_offsets)
    return Replayed(run.stream, batch_id, stamp.batch_no, stamp.written_at, counts)


def _report_overtaken(stream: str, batch_id: int, numbered: Numbered) -> None:
    overtaken = int(numbered.suppressed.overtaken.sum())
    if overtaken:
        _log.warning(
            "stream=%s batch=%d overtaken=%d: entries older than their subject's newest one are"
            " recorded and not written: see `holdfast suppressed list --stream %s`",
            stream,
            batch_id,
            overtaken,
            stream,
        )


def _report_differing(stream: str, batch_id: int, differing: int) -> None:
    _log.warning(
        "stream=%s batch=%d differing=%d: entries whose keys are recorded with other content are"
        " not written. The state of the job differs from what was published: see `holdfast"
        " stream show %s`",
        stream,
        batch_id,
        differing,
        stream,
    )


def _record(
    connection: psycopg.Connection,
    run: Run,
    batch_id: int,
    digest: bytes,
    counts: Counts,
    stamp: Stamp,
    source_offsets: str | None,
) -> None:
    execute(
        connection,
        "batch/add_batch",
        stream=run.stream,
        query_id=run.query_id,
        batch_id=batch_id,
        batch_no=stamp.batch_no,
        run_id=run.run_id,
        epoch=run.epoch,
        rows=counts.rows,
        entries=counts.entries,
        duplicates=counts.duplicates,
        differing=counts.differing,
        suppressed=counts.suppressed,
        quarantined=counts.quarantined,
        digest=digest,
        source_offsets=source_offsets,
        written_at=stamp.written_at,
    )


def _newest(row: dict[str, object]) -> str:
    return f"run {row['run_id']} took epoch {row['epoch']} at {row['started_at']}"


# The subjects of a batch: locked before their entries are numbered, advanced afterwards.
#
# The sequence belongs to the subject. The transition state, by which repeats are suppressed, is
# kept for each stream that writes the subject. The holder of the subject's row lock may change
# both.

_STATE = ("last_type", "last_occurred_at")
_LOCKED = pa.schema(
    {
        "position": pa.int64(),
        "id": pa.int64(),
        "last_sequence": pa.int64(),
        "last_created_at": pa.timestamp("us", "UTC"),
    }
)
_TRANSITIONS = pa.schema([("subject_id", pa.int64()), *(SUBJECTS.field(name) for name in _STATE)])


class Locked(NamedTuple):
    """The subjects of a batch, until COMMIT."""

    subjects: pa.Table
    """`numbering.SUBJECTS`, without transition states: see `with_transitions`."""

    newest: datetime | None
    """`created_at` of the newest entry of any of them."""


def lock_subjects(connection: psycopg.Connection, names: pa.Array) -> Locked:
    """Create missing subjects and lock all. `names` are unique and in the order of their bytes."""
    if not len(names):
        none = _with_states(_LOCKED.empty_table(), _TRANSITIONS.empty_table())
        return Locked(none, None)
    literal = array_literal(pa.chunked_array([names]))
    execute(connection, "subjects/add_subjects", names=literal)
    text = one_row(connection, "subjects/lock_subjects", names=literal)["found"] or ""
    locked = read_csv(text.encode(), _LOCKED).sort_by("position")
    if locked["position"].to_pylist() != list(range(1, len(names) + 1)):
        raise RuntimeError(f"{len(names)} subjects were to be locked, {locked.num_rows} were found")
    return Locked(
        _with_states(locked, _TRANSITIONS.empty_table()), pc.max(locked["last_created_at"]).as_py()
    )


def with_transitions(connection: psycopg.Connection, locked: Locked, stream: str) -> Locked:
    """Add the transition states that the locked subjects have in a stream."""
    if not locked.subjects.num_rows:
        return locked
    ids = array_literal(locked.subjects["id"])
    text = one_row(connection, "subjects/read_transitions", ids=ids, stream=stream)["found"] or ""
    states = read_csv(text.encode(), _TRANSITIONS)
    return locked._replace(subjects=_with_states(locked.subjects, states))


def _with_states(subjects: pa.Table, transitions: pa.Table) -> pa.Table:
    places = pc.index_in(subjects["id"], transitions["subject_id"].combine_chunks())
    states = [transitions[name].combine_chunks().take(places.combine_chunks()) for name in _STATE]
    return pa.table([subjects["id"], subjects["last_sequence"], *states], schema=SUBJECTS)


def advance_subjects(
    connection: psycopg.Connection, moved: pa.Table, stream: str, stamp: Stamp
) -> None:
    """Advance locked subjects to `numbering.Numbered.moved`.

    `stream` is the one whose transition states are advanced.
    """
    if not moved.num_rows:
        return
    execute(
        connection,
        "subjects/advance_subjects",
        stream=stream,
        ids=array_literal(moved["id"]),
        sequences=array_literal(moved["last_sequence"]),
        types=array_literal(moved["last_type"]),
        times=array_literal(moved["last_occurred_at"]),
        written_at=stamp.written_at,
    )


# The business keys of a batch: recorded for ever, and which of them were known before.
#
# Usually none was, and then COPY records many at half the cost of an INSERT that checks each. So
# COPY is tried first, in a savepoint, unless they are few or the caller expects known keys.

INSERTED = 30
"""Keys up to which one INSERT costs no more than a savepoint and a COPY, and fewer round trips."""


def add_keys(
    connection: psycopg.Connection, entries: pa.Table, batch_no: int, *, expect_known: bool
) -> Keys:
    """Record the keys of `prepared.ARRIVED` rows; they are unique within the batch."""
    fresh = np.ones(entries.num_rows, bool)
    if not len(fresh):
        return Keys(fresh, 0)
    if not expect_known and len(fresh) > INSERTED and _all_fresh(connection, entries, batch_no):
        return Keys(fresh, 0)
    parameters = {
        "keys": array_literal(entries["key"]),
        "contents": array_literal(entries["content"]),
        "batch_no": batch_no,
    }
    if execute(connection, "keys/add_keys", **parameters).rowcount == entries.num_rows:
        return Keys(fresh, 0)
    known = execute(connection, "keys/known_keys", **parameters).fetchall()
    fresh[[row["position"] for row in known]] = False
    return Keys(fresh, sum(row["differs"] for row in known))


def _all_fresh(connection: psycopg.Connection, entries: pa.Table, batch_no: int) -> bool:
    """Record all keys, or none where one is known."""
    key, content = (uuids(one_chunk(entries[name])) for name in ("key", "content"))
    # Sorted by the first half only: a tie is harmless.
    order = np.argsort(key.view(">u8")[::2].astype(np.uint64))
    stamped = [key[order], content[order], np.full(len(key), batch_no, ">i8")]
    try:
        with (
            connection.transaction(),
            fitting(),
            connection.cursor().copy(statement("keys/copy_keys")) as copy,
        ):
            copy.write(HEADER)
            copy.write(rows(stamped))
            copy.write(TRAILER)
    except psycopg.errors.UniqueViolation:
        return False
    return True
