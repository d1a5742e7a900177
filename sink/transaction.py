"""THE transaction, in order. Every function here runs inside it, on the caller's connection.

    lock the stream -> fence -> ledger -> stage rows -> lock subjects -> record keys -> number
    -> ledger row -> entries -> subjects -> quarantine -> `also` -> (the caller commits)

Locks are taken in one order everywhere (the stream, then subjects by name, then keys by value), so
two streams that decide about the same subjects wait for each other and never deadlock.
"""

import logging
from collections.abc import Callable
from uuid import UUID

import psycopg

from sink.content import Content, Staged
from sink.contract.canonical import rfc3339
from sink.contract.failpoints import failpoint
from sink.database import execute, one_row
from sink.errors import Fenced, UnadoptedCheckpoint
from sink.ledger import Counts, Run, Written

Also = Callable[[psycopg.Connection], None]

_log = logging.getLogger(__name__)


def lock(connection: psycopg.Connection, run: Run, batch_id: int) -> None:
    """Lock the stream; raises `Fenced` or `UnadoptedCheckpoint` where this run may not write."""
    found = execute(connection, "lock_stream", stream=run.stream).fetchone()
    if found is None or found["epoch"] != run.epoch:
        newest = "the stream is gone" if found is None else _newest(found)
        raise Fenced(
            f"stream {run.stream!r}: run {run.run_id} (epoch {run.epoch}) may not write batch"
            f" {batch_id}: {newest}. Nothing is lost: the newer run finds in the ledger what was"
            " written and replays the rest from the checkpoint. Stop this driver; if it is the"
            " right one, stop the other and restart this one."
        )
    if found["query_id"] != run.query_id:
        raise unadopted(run.stream, run.query_id, found["query_id"])


def unadopted(stream: str, query_id: UUID, adopted: UUID) -> UnadoptedCheckpoint:
    """Say why a query id is refused, and how a person may allow it."""
    return UnadoptedCheckpoint(
        f"stream {stream!r} has adopted query {adopted}, but this checkpoint is query {query_id}."
        " Nothing was written. If the checkpoint was moved or lost by mistake, restart from the"
        " adopted one; if the new one is meant, run"
        f" `holdfast stream adopt {stream} --query-id {query_id} --reason TEXT` and restart: keys"
        " that are recorded already repeat nothing."
    )


def write(
    connection: psycopg.Connection,
    run: Run,
    batch_id: int,
    batch: Content,
    *,
    source_offsets: str | None,
    suppress_repeats: bool,
    also: Also | None,
) -> Written:
    """Write a batch that the ledger does not have. The stream is locked."""
    staged = batch.stage(connection)
    failpoint("S5")
    execute(connection, "add_subjects")
    locked = one_row(connection, "lock_subjects")
    reserved = one_row(connection, "reserve_batch", last_created_at=locked["last_created_at"])
    batch_no, written_at = reserved["batch_no"], reserved["written_at"]
    counts, overtaken = _number(
        connection, batch, staged, batch_no, suppress_repeats=suppress_repeats
    )
    if overtaken:
        _log.warning(
            "stream=%s batch=%d overtaken=%d: entries older than their subject's newest one are"
            " recorded and not written",
            run.stream,
            batch_id,
            overtaken,
        )
    execute(
        connection,
        "add_batch",
        stream=run.stream,
        query_id=run.query_id,
        batch_id=batch_id,
        batch_no=batch_no,
        run_id=run.run_id,
        epoch=run.epoch,
        rows=counts.rows,
        entries=counts.entries,
        duplicates=counts.duplicates,
        differing=counts.differing,
        suppressed=counts.suppressed,
        quarantined=counts.quarantined,
        digest=batch.digest,
        source_offsets=source_offsets,
        written_at=written_at,
    )
    failpoint("S3")
    execute(connection, "add_entries", batch_no=batch_no, written_at=written_at)
    execute(connection, "advance_subjects", written_at=written_at)
    batch.quarantine(connection, batch_no, rfc3339(written_at))
    failpoint("S6")
    if also is not None:
        also(connection)
    return Written(run.stream, batch_id, batch_no, written_at, counts)


def _newest(found: dict[str, object]) -> str:
    return f"run {found['run_id']} took epoch {found['epoch']} at {found['started_at']}"


def _number(
    connection: psycopg.Connection,
    batch: Content,
    staged: Staged,
    batch_no: int,
    *,
    suppress_repeats: bool,
) -> tuple[Counts, int]:
    """Return the counts, and how many of the suppressed entries were overtaken."""
    found = one_row(connection, "number_entries", batch_no=batch_no, suppress=suppress_repeats)
    known = staged.entries - found["fresh"]
    differing = one_row(connection, "count_differing", batch_no=batch_no)["count"] if known else 0
    counts = Counts(
        rows=batch.row_count,
        entries=found["numbered"],
        duplicates=staged.duplicates + known,
        differing=differing,
        suppressed=found["fresh"] - found["numbered"],
        quarantined=staged.quarantined,
    )
    return counts, found["overtaken"]
