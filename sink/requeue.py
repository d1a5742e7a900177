"""Single entries that a person writes, through the sink's own transaction.

They go to a stream of their own, because the original stream belongs to its query: quarantined rows
to `<stream>.requeue`, reissued entries to `<stream>.reissue`. The query id is derived from the
stream's name and the batch id is the entry's number (for a quarantined row, its quarantine id), so
the ledger knows what was written before. The stream acts for the original one and shares its
transition states: a requeued block makes the job's next block a repeat.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID, uuid4, uuid5

import numpy as np
import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.requeue import REQUEUED, Overtakes, Requeued
from holdfast.sink.contract.states import QuarantineReason
from holdfast.sink.errors import BatchTooLarge, Fenced, ReplayDiverged, SchemaMismatch, SinkError
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.numbering import SUBJECTS, number
from holdfast.sink.rows.postgres_text import array_literal
from holdfast.sink.rows.prepared import PreparedBatch
from holdfast.sink.rows.row_text import Unfit, table_of
from holdfast.sink.transaction import future_dated, ledger
from holdfast.sink.transaction.database import Timeouts, execute
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.ledger import Replayed, Run, Written
from holdfast.sink.transaction.writer import Writer

if TYPE_CHECKING:
    import psycopg

STREAM_CHARACTERS_MAX = 63
"""As ck_stream_name."""

TIMEOUTS = Timeouts(deadline_seconds=30)

FENCED_ATTEMPTS = 20
FENCED_WAIT_SECONDS = 0.25
"""Several times what it takes to begin a run and write a row, so that each process succeeds."""

_NAMESPACE = UUID("5e4b7f1c-9a0d-5c36-8b1e-2f7d60a3c948")


class _NothingNew(Exception):
    """Rolls back a batch that would write no entry."""


@dataclass(slots=True)
class _Target:
    """Where rows of one stream go."""

    writer: Writer
    run: Run
    """Epoch 0 until the run has begun."""

    suppress_repeats: bool
    acts_for: str
    overtakes: Overtakes | None

    def begin(self) -> None:
        """Take the stream and create it where it is new: only for a row that can be written."""
        if not self.run.epoch:
            run = self.run
            self.run = self.writer.begin_run(run.query_id, run.run_id, acts_for=self.acts_for)

    def begin_anew(self) -> None:
        """Let the next `begin` take the stream back from a newer run."""
        self.run = replace(self.run, epoch=0)


def requeue(
    dsn: str,
    stream: str,
    rows: Mapping[int, str],
    *,
    suppress_repeats: bool,
    suffix: str = REQUEUED,
    overtakes: Overtakes | None = None,
) -> Iterator[Requeued]:
    """As `holdfast.sink.contract.requeue.Requeue`."""
    name = stream_of(stream, suffix)
    run = Run(name, query_id_of(stream, suffix), uuid4(), epoch=0)
    try:
        writer = Writer(dsn, name, suppress_repeats=suppress_repeats, timeouts=TIMEOUTS)
    except ValueError as error:
        raise CommandError(f"{error}. Nothing was changed.") from None
    try:
        acts_for = writer.read(lambda connection: _acts_for(connection, stream))
        target = _Target(writer, run, suppress_repeats, acts_for, overtakes)
        for number, text in rows.items():
            yield _requeue(target, number, text)
    except SinkError as error:
        raise CommandError(
            f"it ended at an entry; those before it are written, and a retry writes nothing twice:"
            f" {error}"
        ) from None
    finally:
        writer.close()


def stream_of(stream: str, suffix: str = REQUEUED) -> str:
    """Return the name of the stream in which entries of `stream` are written by hand.

    >>> stream_of("payouts"), stream_of("payouts", ".reissue")
    ('payouts.requeue', 'payouts.reissue')
    """
    if len(stream) + len(suffix) <= STREAM_CHARACTERS_MAX:
        return stream + suffix
    short = hashlib.sha256(stream.encode()).hexdigest()[:16]
    return f"{stream[: STREAM_CHARACTERS_MAX - len(suffix) - 17]}-{short}{suffix}"


def query_id_of(stream: str, suffix: str = REQUEUED) -> UUID:
    """Return the query id of the stream in which entries of `stream` are written by hand.

    Revision 0024 recognises such streams by it, so it never changes.
    """
    return uuid5(_NAMESPACE, stream if suffix == REQUEUED else stream_of(stream, suffix))


def _acts_for(connection: "psycopg.Connection", stream: str) -> str:
    """Return the stream whose transition states entries of `stream` use."""
    found = execute(connection, "batch/acts_for", stream=stream).fetchone()
    return stream if found is None else found["acts_for"]


def _requeue(target: _Target, quarantine_id: int, text: str) -> Requeued:
    try:
        batch = _prepared(text)
        target.writer.read(lambda connection: _foresee(connection, target, quarantine_id, batch))
        outcome = _write(target, quarantine_id, batch)
    except (Unfit, _NothingNew) as why:
        return Requeued(quarantine_id, written=False, detail=str(why))
    except ReplayDiverged:
        detail = (
            f"another row was requeued for it before: see `holdfast batch show {target.run.stream}"
            f" {quarantine_id}`"
        )
        return Requeued(quarantine_id, written=False, detail=detail)
    when = "written" if isinstance(outcome, Written) else "was written before"
    return Requeued(quarantine_id, written=True, detail=f"{when} in stream {target.run.stream}")


def _write(target: _Target, quarantine_id: int, batch: PreparedBatch) -> Written | Replayed:
    """Write in the stream's newest run, even if another process writes by hand at the same time.

    The ledger makes that safe: the second process finds the row's batch, or writes it.
    """

    def attempt() -> Written | Replayed:
        target.begin()
        return target.writer.write(
            quarantine_id,
            InDriver(batch),
            also=lambda connection: _insist(connection, target, quarantine_id, batch),
        )

    return Retrying(
        retry=retry_if_exception_type(Fenced),
        wait=wait_random(0, FENCED_WAIT_SECONDS),
        stop=stop_after_attempt(FENCED_ATTEMPTS),
        before_sleep=lambda _: target.begin_anew(),
        reraise=True,
    )(attempt)


def _prepared(text: str) -> PreparedBatch:
    try:
        batch = prepare(BatchInput(table_of(text)))
    except (SchemaMismatch, BatchTooLarge) as error:
        raise Unfit(str(error)) from None
    for row in batch.quarantined.to_pylist():
        raise Unfit(f"{row['reason']}: {row['detail']}")
    return batch


def _foresee(
    connection: "psycopg.Connection", target: _Target, quarantine_id: int, batch: PreparedBatch
) -> None:
    """Raise `_NothingNew` where the row would not be written now; takes no lock.

    `_insist` covers what changes before the row is written.
    """
    if ledger.read(connection, target.run, [quarantine_id]):
        return
    arrived = batch.arrived
    limit = future_dated.latest(connection, future_dated.TOLERANCE)
    for occurred_at in arrived["occurred_at"].to_pylist():
        if occurred_at > limit:
            raise _NothingNew(
                f"{QuarantineReason.FUTURE_DATED}: {future_dated.detail(occurred_at, limit)}"
            )
    known = execute(
        connection,
        "keys/known_keys",
        keys=array_literal(arrived["key"]),
        contents=array_literal(arrived["content"]),
        batch_no=-1,
    ).fetchone()
    if known is not None:
        raise _NothingNew(_why(suppressed=False, differing=known["differs"]))
    [subject] = arrived["subject"].to_pylist()
    given = {"subject": subject, "stream": target.acts_for}
    found = execute(connection, "subjects/read_subject", **given).fetchall()
    if found and target.suppress_repeats:
        subjects = pa.Table.from_pylist(found, SUBJECTS)
        if number(arrived, subjects, np.ones(1, bool), suppress=True).suppressed.rows.size:
            raise _NothingNew(_why(suppressed=True, differing=False))
    _require_newest(connection, target, batch, written=0)


def _insist(
    connection: "psycopg.Connection", target: _Target, quarantine_id: int, batch: PreparedBatch
) -> None:
    """Let the batch commit only if it holds the entry, as its subject's newest or as approved.

    It holds the subject's lock.
    """
    recorded = ledger.read(connection, target.run, [quarantine_id]).get(quarantine_id)
    if recorded is None or not recorded.counts.entries:
        counts = recorded.counts if recorded else None
        if counts is not None and counts.quarantined:
            raise _NothingNew(f"{QuarantineReason.FUTURE_DATED}: it is dated too far ahead")
        raise _NothingNew(
            _why(
                suppressed=counts is not None and counts.suppressed > 0,
                differing=counts is not None and counts.differing > 0,
            )
        )
    _require_newest(connection, target, batch, written=1)


def _require_newest(
    connection: "psycopg.Connection", target: _Target, batch: PreparedBatch, *, written: int
) -> None:
    """Raise `_NothingNew` where the one entry would follow a newer decision that nobody approved.

    `written`: 1 if the subject's sequence counts the entry already.
    """
    [row] = batch.arrived.select(["subject", "type", "occurred_at"]).to_pylist()
    given = {"subject": row["subject"], "type": row["type"], "stream": target.acts_for}
    found = execute(connection, "subjects/newest_decision", **given).fetchone()
    overtakes = target.overtakes
    if found is None or found["occurred_at"] is None:
        return
    if overtakes is not None and found["last_sequence"] != overtakes.last_sequence + written:
        raise _NothingNew("a decision of its subject was written since that was proposed")
    limit = (
        row["occurred_at"] if overtakes is None else max(overtakes.occurred_at, row["occurred_at"])
    )
    if found["occurred_at"] > limit:
        raise _NothingNew(
            f"its subject has a newer decision, of {rfc3339(found['occurred_at'])}: to write it"
            " after that needs a second person"
        )


def _why(*, suppressed: bool, differing: bool) -> str:
    if suppressed:
        return (
            "its subject has a newer entry, or already has this type: as an entry it would change"
            " nothing (with --keep-repeats it is written, or proposed to a second person)"
        )
    if differing:
        return "its key is recorded with different content, and the first entry stands"
    return "its key is recorded with the same content: it is in the outbox, so dismiss the row"
