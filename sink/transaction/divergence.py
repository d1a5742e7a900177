"""How a replay differs from what its batch wrote, and a record of it for `holdfast batch diff`.

The comparison runs inside the batch's transaction, which the error then rolls back. So the error
carries the rows, and `keep` writes them in another transaction.
"""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import psycopg
from psycopg.rows import DictRow

from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import DivergenceSide
from holdfast.sink.errors import Divergence, KeyDifference, ReplayDiverged, SinkError
from holdfast.sink.rows.copy_formats import array_literal
from holdfast.sink.transaction import future_dated
from holdfast.sink.transaction.content import Content
from holdfast.sink.transaction.database import execute, fitting, statement

FIRST_KEYS = 20
"""Keys of each side that an error names."""

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
    run_id: UUID
    """The run of the replay."""

    digest: bytes
    """The digest of the replay."""

    rows: tuple[DivergedRow, ...]
    """The first rows of each side by key: at most 10,000 rows and BODIES_MAX characters."""


def compare(
    connection: psycopg.Connection,
    batch: Content,
    batch_no: int,
    *,
    run_id: UUID,
    rows_then: int,
    quarantined_then: int,
    limit_then: datetime,
) -> Comparison:
    """Compare a replay with what batch `batch_no` recorded.

    `limit_then` is the latest `occurred_at` that was accepted then.
    """
    arrived = batch.arrive(connection)
    entries, places, beyond = future_dated.split(arrived.entries, limit_then)
    counts: dict[DivergenceSide, int] = {}
    differing = execute(
        connection,
        "rows/compare_keys",
        batch_no=batch_no,
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
        batch_no=batch_no,
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


def in_words(difference: Divergence) -> str:
    """Describe a divergence on one line, with the first keys of each side."""
    words = [
        f"rows {difference.rows_then} then, {difference.rows_now} now",
        f"quarantined {difference.quarantined_then} then, {difference.quarantined_now} now",
    ]
    sides = (
        ("only in the ledger", difference.only_in_ledger),
        ("only in this replay", difference.only_in_replay),
        ("with other content", difference.changed),
    )
    words += [f"{side.count} keys {name} ({_listed(side)})" for name, side in sides if side.count]
    if len(words) == 2:
        words.append("the keys are the same, so another column or table of the batch differs")
    return "; ".join(words)


def keep(connection: psycopg.Connection, error: ReplayDiverged) -> bool:
    """Record a diverged replay for `holdfast batch diff`; changes nothing else.

    Opens a transaction of its own, or a savepoint in the caller's. A repeated replay with the same
    digest is recorded once. Returns whether it is recorded; never raises a database error, because
    the caller raises a more important one.
    """
    difference = error.divergence
    if not isinstance(difference, Comparison):
        return False
    try:
        with connection.transaction():
            _record(connection, difference)
    except (psycopg.Error, SinkError) as why:
        _log.warning(
            "batch_no=%d: the diverged replay could not be recorded (%s); `holdfast batch diff`"
            " does not have it",
            difference.batch_no,
            " ".join(str(why).split()),
        )
        return False
    return True


def _record(connection: psycopg.Connection, difference: Comparison) -> None:
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
        return
    with (
        fitting(),
        connection.cursor().copy(statement("rows/copy_divergence_rows")) as copy,
    ):
        for row in difference.rows:
            copy.write_row((added["id"], *row))


def _listed(side: KeyDifference) -> str:
    more = ", ..." if side.count > len(side.first) else ""
    return ", ".join(Key(digest).text for digest in side.first) + more
