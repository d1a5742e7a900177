"""Single entries that a person writes, through the sink's own transaction.

They go to a stream of their own, because the original stream belongs to its query: quarantined rows
to `<stream>.requeue`, reissued entries to `<stream>.reissue`, decisions by hand to
`<stream>.decide`. The query id is derived from the
stream's name and the batch id is the entry's number (for a quarantined row, its quarantine id), so
the ledger knows what was written before. The stream acts for the original one and shares its
transition states: a requeued block makes the job's next block a repeat.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.compatibility import parse_time
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.requeue import (
    REQUEUED,
    Opened,
    Outcome,
    Overtakes,
    Requeued,
    query_id_of,
    stream_of,
)
from holdfast.sink.contract.states import QuarantineReason
from holdfast.sink.errors import BatchTooLarge, Fenced, ReplayDiverged, SchemaMismatch, SinkError
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.copy_formats import array_literal
from holdfast.sink.rows.future_dated import TOLERANCE, detail
from holdfast.sink.rows.numbering import SUBJECTS, number
from holdfast.sink.rows.outcome import Replayed, Run, Written
from holdfast.sink.rows.prepared import PreparedBatch
from holdfast.sink.transaction import future_dated, ledger
from holdfast.sink.transaction.database import Timeouts, execute
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer

if TYPE_CHECKING:
    import psycopg

TIMEOUTS = Timeouts(deadline_seconds=30)

FENCED_ATTEMPTS = 20
FENCED_WAIT_SECONDS = 0.25
"""Several times what it takes to begin a run and write a row, so that each process succeeds."""


class _NothingNew(Exception):
    """Rolls back a batch that would write no entry."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome


@dataclass(slots=True)
class _Target:
    """Where rows of one stream go."""

    writer: Writer
    run: Run
    """Epoch 0 until the run has begun."""

    suppress_repeats: bool
    acts_for: str
    overtakes: Overtakes | None = None
    last_sequence: int | None = None

    def begin(self) -> None:
        """Take the stream and create it where it is new: only for a row that can be written."""
        if not self.run.epoch:
            run = self.run
            self.run = self.writer.begin_run(run.query_id, run.run_id, acts_for=self.acts_for)

    def begin_anew(self) -> None:
        """Let the next `begin` take the stream back from a newer run."""
        self.run = replace(self.run, epoch=0)

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


def requeue(
    dsn: str,
    stream: str,
    rows: Mapping[int, str],
    *,
    suppress_repeats: bool,
    suffix: str = REQUEUED,
    overtakes: Overtakes | None = None,
    last_sequence: int | None = None,
    foresee: bool = False,
    opened: Opened | None = None,
) -> Iterator[Requeued]:
    """As `holdfast.sink.contract.requeue.Requeue`."""
    kept = opened or Opened()
    try:
        target = _target(kept, dsn, stream, suffix, suppress_repeats=suppress_repeats)
        target.overtakes, target.last_sequence = overtakes, last_sequence
        if foresee:
            yield from target.writer.read(lambda connection: _outcomes(connection, target, rows))
            return
        for number, text in rows.items():
            yield _requeue(target, number, text)
    except SinkError as error:
        raise CommandError(
            f"it ended at an entry; those before it are written, and a retry writes nothing twice:"
            f" {error}",
            code="sink_error",
        ) from None
    finally:
        if opened is None:
            kept.close()


def _target(kept: Opened, dsn: str, stream: str, suffix: str, *, suppress_repeats: bool) -> _Target:
    """Return the one that is kept, or open it."""
    place = (dsn, stream, suffix, suppress_repeats)
    if place not in kept.kept:
        name = stream_of(stream, suffix)
        run = Run(name, query_id_of(stream, suffix), uuid4(), epoch=0)
        try:
            writer = Writer(dsn, name, suppress_repeats=suppress_repeats, timeouts=TIMEOUTS)
        except ValueError as error:
            raise CommandError(f"{error}. Nothing was changed.", code="invalid_stream") from None
        target = kept.kept[place] = _Target(writer, run, suppress_repeats, acts_for=stream)
        target.acts_for = writer.read(lambda connection: _acts_for(connection, stream))
    kept_target: _Target = kept.kept[place]
    return kept_target


def _acts_for(connection: "psycopg.Connection", stream: str) -> str:
    """Return the stream whose transition states entries of `stream` use."""
    row = execute(connection, "batch/acts_for", stream=stream).fetchone()
    return stream if row is None else row["acts_for"]


def _requeue(target: _Target, quarantine_id: int, text: str) -> Requeued:
    try:
        batch = _prepared(text)
        target.writer.read(lambda connection: _foresee(connection, target, quarantine_id, batch))
        outcome = _write(target, quarantine_id, batch)
    except (Unfit, _NothingNew) as why:
        return _refused(quarantine_id, why)
    except ReplayDiverged:
        detail = (
            f"another row was requeued for it before: see `holdfast batch show {target.run.stream}"
            f" {quarantine_id}`"
        )
        return Requeued(quarantine_id, Outcome.CHANGED, detail)
    when = "written" if isinstance(outcome, Written) else "was written before"
    return Requeued(quarantine_id, Outcome.WRITTEN, f"{when} in stream {target.run.stream}")


def _refused(quarantine_id: int, why: Exception) -> Requeued:
    outcome = why.outcome if isinstance(why, _NothingNew) else Outcome.UNFIT
    return Requeued(quarantine_id, outcome, str(why))


def _outcomes(
    connection: "psycopg.Connection", target: _Target, rows: Mapping[int, str]
) -> list[Requeued]:
    """Return what `_requeue` would do with each row alone."""
    outcomes = []
    for quarantine_id, text in rows.items():
        try:
            _foresee(connection, target, quarantine_id, _prepared(text))
            detail = f"is written in stream {target.run.stream}"
            outcomes.append(Requeued(quarantine_id, Outcome.WRITTEN, detail))
        except (Unfit, _NothingNew) as why:
            outcomes.append(_refused(quarantine_id, why))
    return outcomes


def _write(target: _Target, quarantine_id: int, batch: PreparedBatch) -> Written | Replayed:
    """Write in the stream's newest run, even if another process writes by hand at the same time.

    The ledger makes that safe: the second process finds the row's batch, or writes it.
    """

    def attempt() -> Written | Replayed:
        target.begin()
        return target.writer.write(
            quarantine_id,
            InDriver(batch),
            also=lambda connection, _batch: _insist(connection, target, quarantine_id, batch),
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
    limit = future_dated.latest(connection, TOLERANCE)
    for occurred_at in arrived["occurred_at"].to_pylist():
        if occurred_at > limit:
            raise _NothingNew(
                Outcome.FUTURE_DATED,
                f"{QuarantineReason.FUTURE_DATED}: {detail(occurred_at, limit)}",
            )
    known = execute(
        connection,
        "keys/known_keys",
        keys=array_literal(arrived["key"]),
        contents=array_literal(arrived["content"]),
        batch_no=-1,
    ).fetchone()
    if known is not None:
        raise _nothing_new(suppressed=False, differing=known["differs"])
    [subject] = arrived["subject"].to_pylist()
    parameters = {"subject": subject, "stream": target.acts_for}
    rows = execute(connection, "subjects/read_subject", **parameters).fetchall()
    if rows and target.suppress_repeats:
        subjects = pa.Table.from_pylist(rows, SUBJECTS)
        if number(arrived, subjects, np.ones(1, bool), suppress=True).suppressed.rows.size:
            raise _nothing_new(suppressed=True, differing=False)
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
            why = f"{QuarantineReason.FUTURE_DATED}: it is dated too far ahead"
            raise _NothingNew(Outcome.FUTURE_DATED, why)
        raise _nothing_new(
            suppressed=counts is not None and counts.suppressed > 0,
            differing=counts is not None and counts.differing > 0,
        )
    _require_newest(connection, target, batch, written=1)


def _require_newest(
    connection: "psycopg.Connection", target: _Target, batch: PreparedBatch, *, written: int
) -> None:
    """Raise `_NothingNew` where the one entry would follow a newer decision that nobody approved.

    Also where it would follow one that nobody compared: of two types of one time, and of a time
    that was given by hand, the times do not tell which is newer. `written`: 1 if the subject's
    sequence counts the entry already.
    """
    [row] = batch.arrived.select(["subject", "type", "occurred_at"]).to_pylist()
    parameters = {"subject": row["subject"], "type": row["type"], "stream": target.acts_for}
    newest = execute(connection, "subjects/newest_decision", **parameters).fetchone()
    overtakes = target.overtakes
    if newest is None or newest["occurred_at"] is None:
        return
    if overtakes is not None and newest["last_sequence"] != overtakes.last_sequence + written:
        raise _NothingNew(
            Outcome.CHANGED, "a decision of its subject was written since that was proposed"
        )
    limit = (
        row["occurred_at"] if overtakes is None else max(overtakes.occurred_at, row["occurred_at"])
    )
    if newest["occurred_at"] > limit:
        raise _NothingNew(
            Outcome.NEWER_DECISION,
            f"its subject has a newer decision, of {rfc3339(newest['occurred_at'])}: to write it"
            " after that needs a second person",
        )
    compared = target.last_sequence
    if compared is not None and newest["last_sequence"] != compared + written:
        raise _NothingNew(
            Outcome.CHANGED,
            "a decision of its subject was written while this one was compared: repeat the command",
        )


def _nothing_new(*, suppressed: bool, differing: bool) -> _NothingNew:
    if suppressed:
        return _NothingNew(
            Outcome.REPEATED,
            "its subject has a newer entry, or already has this type: as an entry it would change"
            " nothing (with --keep-repeats it is written, or proposed to a second person)",
        )
    if differing:
        return _NothingNew(
            Outcome.KEY_CONFLICT,
            "its key is recorded with different content, and the first entry stands",
        )
    return _NothingNew(
        Outcome.KEY_RECORDED,
        "its key is recorded with the same content: it is in the outbox, so dismiss the row",
    )


# One entry as JSON text that a person wrote: read, or refused with a message. Pure.

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_TYPES = {
    "subject": pa.string(),
    "type": pa.string(),
    "key": pa.list_(pa.string()),
    "occurred_at": pa.timestamp("us", "UTC"),
    "priority": pa.int32(),
    "traceparent": pa.string(),
}
_STRINGS = ("subject", "type", "traceparent")
_OPTIONAL = {"priority", "traceparent"}
_MEMBERS = {*_TYPES, "data"}
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_DIGITS_MAX, _SHOWN_MAX = 20, 40


class Unfit(ValueError):
    """The row cannot become an entry; the text is for a person."""


def table_of(text: str) -> pa.Table:
    """Return the one row of a JSON text as `BatchInput.entries`. Raises `Unfit`."""
    row = _object(text)
    unknown, missing = row.keys() - _MEMBERS, _MEMBERS - _OPTIONAL - row.keys()
    if unknown or missing:
        raise Unfit(
            f"an entry has the members {', '.join(sorted(_MEMBERS))};"
            f" missing here: {', '.join(sorted(missing)) or 'none'};"
            f" unknown: {', '.join(sorted(unknown)) or 'none'}"
        )
    if not isinstance(row["data"], dict | None):
        raise Unfit("data is not a JSON object")
    _typed(row)
    row["occurred_at"] = _moment(row["occurred_at"])
    columns = {name: pa.array([row.get(name)], type_) for name, type_ in _TYPES.items()}
    try:
        data = pa.array([row["data"]], None if row["data"] is not None else pa.struct([]))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise Unfit("a list of data has values of several types, which an entry cannot") from None
    if data[0].as_py() != row["data"]:
        raise Unfit("objects in one list of data differ in their members, which an entry cannot")
    return pa.table({**columns, "data": data})


def _typed(row: dict[str, Any]) -> None:
    """Refuse what Arrow would refuse, or convert: a text into a list of letters."""
    for name in _STRINGS:
        if not isinstance(row.get(name), str | None):
            raise Unfit(f"{name} is not a string")
    key, priority = row["key"], row.get("priority")
    if key is not None and not (isinstance(key, list) and all(isinstance(k, str) for k in key)):
        raise Unfit("key is not a list of strings")
    if priority is not None and not (type(priority) is int and abs(priority) <= _INT32_MAX):
        raise Unfit(f"priority is not a whole number of at most {_INT32_MAX}")


def _object(text: str) -> dict[str, Any]:
    try:
        row = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_no_float,
            parse_constant=_no_float,
        )
        json.dumps(row, ensure_ascii=False).encode()
    except RecursionError:
        raise Unfit("the row is nested too deeply") from None
    except UnicodeEncodeError:
        raise Unfit("a text of the row holds a lone surrogate, which is not a character") from None
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise Unfit(f"the row is not JSON: it cannot be read from {position} on") from None
    if not isinstance(row, dict):
        raise Unfit("the row is not a JSON object")
    return row


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Unfit("an object of the row has a member twice")
    return members


def _integer(text: str) -> int:
    if len(text) <= _DIGITS_MAX and abs(number := int(text)) <= _INT64_MAX:
        return number
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    raise Unfit(f"the number {shown} is beyond 2^53-1, which JSON readers round: send a string")


def _no_float(text: str) -> Any:
    raise Unfit(
        f"the number {text[:_SHOWN_MAX]} is not whole: send integer minor units, or a string"
    )


def _moment(text: Any) -> datetime | None:
    if text is None:
        return None
    if isinstance(text, str) and _TIME.fullmatch(text):
        try:
            return parse_time(text)
        except ValueError:
            pass
    raise Unfit(f"occurred_at {str(text)[:_SHOWN_MAX]!r} is not RFC 3339 with a zone")
