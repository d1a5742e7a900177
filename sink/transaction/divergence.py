"""How a replay differs from what its batch wrote, and a record of it, which a person may accept.

The comparison runs inside the batch's transaction, which the error then rolls back. So the error
carries the rows, and `keep` writes them in another transaction.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import psycopg
from psycopg.rows import DictRow

from holdfast.sink.contract.states import DivergenceSide
from holdfast.sink.errors import Divergence, KeyDifference, SinkError
from holdfast.sink.rows import future_dated
from holdfast.sink.rows.copy_formats import array_literal
from holdfast.sink.rows.outcome import FIRST_KEYS
from holdfast.sink.transaction.content import Content
from holdfast.sink.transaction.database import execute, fitting, statement

BODIES_MAX = 32 << 20
"""Maximum characters of bodies stored for one replay, beyond those of the first keys."""

_log = logging.getLogger(__name__)


class DivergedRow(NamedTuple):
    """A key in which a replay and the ledger differ. All columns but key and side are the replay's.

    They are None where only the ledger has the key. `body` is the one that would be sent, with the
    sequence `null`: a replay is not numbered.
    """

    key: UUID
    side: DivergenceSide
    subject: str | None
    type: str | None
    occurred_at: datetime | None
    body: str | None


@dataclass(frozen=True, slots=True)
class Comparison(Divergence):
    """A divergence with the rows that are stored of it."""

    batch_no: int
    query_id: UUID
    batch_id: int
    """Both of the batch."""

    run_id: UUID
    """The run of the replay."""

    digest: bytes
    """The digest of the replay."""

    rows: tuple[DivergedRow, ...]
    """The first rows of each side by key: at most 10,000 rows and BODIES_MAX characters."""


def compare(
    connection: psycopg.Connection,
    batch: Content,
    batch_nos: Sequence[int],
    *,
    query_id: UUID,
    batch_id: int,
    run_id: UUID,
    rows_then: int,
    quarantined_then: int,
    limit_then: datetime,
) -> Comparison:
    """Compare a replay with what a batch, the first number, and its accepted replays recorded.

    `limit_then` is the latest `occurred_at` that was accepted then.
    """
    arrived = batch.arrive(connection)
    entries, places, beyond = future_dated.split(arrived.entries, limit_then)
    counts: dict[DivergenceSide, int] = {}
    differing = execute(
        connection,
        "rows/compare_keys",
        batch_nos=list(batch_nos),
        keys=array_literal(entries["key"]),
        contents=array_literal(entries["content"]),
    ).fetchall()
    for row in differing:
        if row["position"] is not None:
            row["position"] = int(places[row["position"]])
        counts[DivergenceSide(row["side"])] = row["count"]
    rows = _rows(connection, batch, differing)

    def difference(side: DivergenceSide) -> KeyDifference:
        first = [row.key for row in rows if row.side is side][:FIRST_KEYS]
        return KeyDifference(counts.get(side, 0), tuple(first))

    return Comparison(
        rows_then=rows_then,
        rows_now=batch.row_count,
        quarantined_then=quarantined_then,
        quarantined_now=arrived.quarantined + len(beyond),
        only_in_ledger=difference(DivergenceSide.ONLY_IN_LEDGER),
        only_in_replay=difference(DivergenceSide.ONLY_IN_REPLAY),
        changed=difference(DivergenceSide.CHANGED),
        batch_no=batch_nos[0],
        query_id=query_id,
        batch_id=batch_id,
        run_id=run_id,
        digest=batch.digest,
        rows=tuple(rows),
    )


def _rows(
    connection: psycopg.Connection, batch: Content, differing: list[DictRow]
) -> list[DivergedRow]:
    """Join the differing keys with the replay's entries, the first keys of each side first."""
    differing = sorted(differing, key=lambda row: (row["place"], row["side"]))
    positions = [row["position"] for row in differing if row["position"] is not None]
    brought = dict(zip(positions, batch.rows_at(connection, positions).to_pylist(), strict=True))
    rows: list[DivergedRow] = []
    size = 0
    for row in differing:
        entry = brought.get(row["position"])
        # The replay was not numbered, so its body has no sequence.
        body = None if entry is None else f"{entry['head']}null{entry['tail']}"
        size += len(body or "")
        if size > BODIES_MAX and row["place"] > FIRST_KEYS:
            break
        side = DivergenceSide(row["side"])
        if entry is None:
            rows.append(DivergedRow(row["key"], side, None, None, None, None))
        else:
            rows.append(
                DivergedRow(
                    row["key"], side, entry["subject"], entry["type"], entry["occurred_at"], body
                )
            )
    return sorted(rows, key=lambda row: (row.side, row.key))


def keep(connection: psycopg.Connection, difference: Comparison) -> int | None:
    """Record a diverged replay for `holdfast batch diff` and `accept`; changes nothing else.

    Opens a transaction of its own, or a savepoint in the caller's. A repeated replay with the same
    digest is recorded once. Returns its number, or None where it is not recorded; never raises a
    database error, because the caller raises a more important one.
    """
    try:
        with connection.transaction():
            return _record(connection, difference)
    except (psycopg.Error, SinkError) as why:
        _log.warning(
            "batch_no=%d: the diverged replay could not be recorded (%s); `holdfast batch diff`"
            " does not have it",
            difference.batch_no,
            " ".join(str(why).split()),
        )
        return None


def accept_command(stream: str, difference: Comparison, number: int, adopted: UUID) -> str:
    """Return the command that accepts a recorded replay; `adopted` is the stream's query id."""
    query = "" if difference.query_id == adopted else f" --query-id {difference.query_id}"
    return (
        f"holdfast batch accept {stream} {difference.batch_id}{query} --divergence {number}"
        " --reason TEXT"
    )


def _record(connection: psycopg.Connection, difference: Comparison) -> int | None:
    sides = (difference.only_in_ledger, difference.only_in_replay, difference.changed)
    added = execute(
        connection,
        "rows/add_divergence",
        batch_no=difference.batch_no,
        digest=difference.digest,
        run_id=difference.run_id,
        rows=difference.rows_now,
        quarantined=difference.quarantined_now,
        differing=sum(side.count for side in sides),
    ).fetchone()
    if added is None:
        return None
    number = int(added["id"])
    if not added["is_new"]:
        return number
    with (
        fitting(),
        connection.cursor().copy(statement("rows/copy_divergence_rows")) as copy,
    ):
        for row in difference.rows:
            copy.write_row((number, *row))
    return number
