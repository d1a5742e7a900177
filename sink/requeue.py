"""Rows of the quarantine as entries after all, through the sink's own transaction.

They are written in a stream of their own, `<stream>.requeue`, because the stream that they were
refused in belongs to its query. Its query id follows from the stream's name and the batch id is the
row's number in the quarantine, so the ledger knows a row that was put back before.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

import pyarrow as pa

from sink import ledger
from sink.batch import BatchInput, prepare
from sink.contract.exits import CommandError
from sink.contract.requeue import Requeued
from sink.driver_path import InDriver
from sink.errors import BatchTooLarge, ReplayDiverged, SchemaMismatch, SinkError
from sink.ledger import Counts, Run
from sink.prepared import PreparedBatch
from sink.writer import Timeouts, Writer, Written

if TYPE_CHECKING:
    import psycopg

SUFFIX = ".requeue"
STREAM_CHARACTERS_MAX = 63
"""As ck_stream_name."""

TIMEOUTS = Timeouts(deadline_seconds=30)

_NAMESPACE = UUID("5e4b7f1c-9a0d-5c36-8b1e-2f7d60a3c948")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_TYPES = {
    "subject": pa.string(),
    "type": pa.string(),
    "key": pa.list_(pa.string()),
    "occurred_at": pa.timestamp("us", "UTC"),
    "priority": pa.int32(),
    "traceparent": pa.string(),
}
_OPTIONAL = {"priority", "traceparent"}
_MEMBERS = {*_TYPES, "data"}


class Unfit(ValueError):
    """The row cannot become an entry; the text is for a person."""


class _NothingNew(Exception):
    """Rolls back a batch that would have written no entry."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Where rows of one stream go."""

    writer: Writer
    run: Run


def requeue(
    dsn: str, stream: str, rows: Mapping[int, str], *, suppress_repeats: bool
) -> Iterator[Requeued]:
    """As `sink.contract.requeue.Requeue`."""
    name = requeue_stream(stream)
    query_id, run_id = uuid5(_NAMESPACE, stream), uuid4()
    try:
        writer = Writer(dsn, name, suppress_repeats=suppress_repeats, timeouts=TIMEOUTS)
    except ValueError as error:
        raise CommandError(f"{error}. Nothing was changed.") from None
    try:
        epoch = writer.begin_run(query_id, run_id)
        target = _Target(writer, Run(name, query_id, run_id, epoch))
        for number, text in rows.items():
            yield _requeue(target, number, text)
    except SinkError as error:
        raise CommandError(
            f"the row was not put back, and stays in the quarantine: {error}"
        ) from None
    finally:
        writer.close()


def requeue_stream(stream: str) -> str:
    """Return the name of the stream that rows of `stream` are put back in.

    >>> requeue_stream("payouts")
    'payouts.requeue'
    """
    if len(stream) + len(SUFFIX) <= STREAM_CHARACTERS_MAX:
        return stream + SUFFIX
    short = hashlib.sha256(stream.encode()).hexdigest()[:16]
    return f"{stream[: STREAM_CHARACTERS_MAX - len(SUFFIX) - 17]}-{short}{SUFFIX}"


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
    if not isinstance(row["key"], list | None):
        # Arrow would take a text for the list of its characters.
        raise Unfit("key is not a list of strings")
    row["occurred_at"] = _moment(row["occurred_at"])
    try:
        columns = {name: pa.array([row.get(name)], type_) for name, type_ in _TYPES.items()}
        data = pa.array([row["data"]], None if row["data"] is not None else pa.struct([]))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Unfit(f"a value has another type than an entry's: {_line(error)}") from None
    if data[0].as_py() != row["data"]:
        raise Unfit("objects in one list of data differ in their members, which an entry cannot")
    return pa.table({**columns, "data": data})


def _requeue(target: _Target, number: int, text: str) -> Requeued:
    try:
        batch = _prepared(text)
        outcome = target.writer.write(
            number,
            InDriver(batch),
            also=lambda connection: _insist(connection, target.run, number),
        )
    except (Unfit, _NothingNew) as why:
        return Requeued(number, written=False, detail=str(why))
    except ReplayDiverged:
        detail = (
            f"another row was put back for it before: see `holdfast batch show {target.run.stream}"
            f" {number}`"
        )
        return Requeued(number, written=False, detail=detail)
    when = "written" if isinstance(outcome, Written) else "was written before"
    return Requeued(number, written=True, detail=f"{when} in stream {target.run.stream}")


def _prepared(text: str) -> PreparedBatch:
    try:
        batch = prepare(BatchInput(table_of(text)))
    except (SchemaMismatch, BatchTooLarge) as error:
        raise Unfit(str(error)) from None
    for row in batch.quarantined.to_pylist():
        raise Unfit(f"{row['reason']}: {row['detail']}")
    return batch


def _insist(connection: "psycopg.Connection", run: Run, number: int) -> None:
    """Let the batch commit only if it holds the entry: a row is put back, or stays as it was."""
    recorded = ledger.read(connection, run, number)
    if recorded is None or not recorded.counts.entries:
        raise _NothingNew(_why(recorded.counts if recorded else None))


def _why(counts: Counts | None) -> str:
    if counts is not None and counts.suppressed:
        return (
            "its subject has a newer entry, or has this type already: as an entry it would change"
            " nothing (--keep-repeats writes it all the same)"
        )
    if counts is not None and counts.differing:
        return "its key is recorded with other content, and what was written first stands"
    return "its key is recorded with the same content: it is in the outbox, so dismiss the row"


def _object(text: str) -> dict[str, Any]:
    try:
        row = json.loads(
            text, object_pairs_hook=_members, parse_float=_no_float, parse_constant=_no_float
        )
    except Unfit:
        raise
    except RecursionError:
        raise Unfit("the row is nested too deeply") from None
    except ValueError as error:
        raise Unfit(f"the row is not JSON: {_line(error)}") from None
    if not isinstance(row, dict):
        raise Unfit("the row is not a JSON object")
    return row


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Unfit("an object of the row has a member twice")
    return members


def _no_float(text: str) -> Any:
    raise Unfit(f"the number {text[:40]} is not whole: send integer minor units, or a string")


def _moment(text: Any) -> datetime | None:
    if text is None:
        return None
    if isinstance(text, str) and _TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    raise Unfit(f"occurred_at {str(text)[:40]!r} is not RFC 3339 with a zone")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
