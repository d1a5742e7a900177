"""Stores results: one transaction that ends leases and records the attempts under them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from psycopg.rows import DictRow

from holdfast.dispatcher.delivery.rules.lifecycle import stops
from holdfast.dispatcher.delivery.rules.values import Settled, Settlement
from holdfast.dispatcher.delivery.store.messages import Plans, begin, run, statement
from holdfast.dispatcher.delivery.store.pacing import concerned, settle_paces
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.sink.contract.failpoints import failpoint

Claimed = tuple[int, int, UUID]
"""Endpoint, subject and token, which identify a lease."""

_ROW = "%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n"
_NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


async def settle(
    connection: Connection, settlements: Sequence[Settlement], *, repeated: bool
) -> list[Settled]:
    """Store `settlements` in a transaction that begins here; see `PostgresStore.settle`.

    Nothing of a lost lease is stored. Its rescue has recorded the same attempts as `unknown`; a
    second row would count them twice.
    """
    lanes = _lanes(settlements)
    (ended,) = await begin(connection, ("settling/lane_settle", lanes), plans=Plans.GENERIC)
    rows = {claimed_row(row): row for row in ended}
    # Lost, or changed meanwhile: lock the lane, so that a second statement sees its last version.
    if missing := [each for each in settlements if claim_of(each) not in rows]:
        lanes = _lanes(missing)
        await run(connection, "settling/lane_hold", lanes)
        ended = await run(connection, "settling/lane_settle", lanes)
        rows |= {claimed_row(row): row for row in ended}
    failpoint("D15")
    leased = [each for each in settlements if claim_of(each) in rows]
    settled = await record(connection, settlements, leased, rows, repeated=repeated)
    failpoint("D11")
    return settled


async def record(
    connection: Connection,
    settlements: Sequence[Settlement],
    leased: Sequence[Settlement],
    rows: dict[Claimed, DictRow],
    *,
    repeated: bool,
) -> list[Settled]:
    """Record what follows from results that were still `leased`, of lanes or of replay items.

    `rows` are what ending the leases returned; `repeated` as in `PostgresStore.settle`.
    """
    await _add_attempts(connection, leased, rows)
    await _bury(connection, leased)
    for endpoint_id, reason in sorted({(s.endpoint_id, s.disable) for s in leased if s.disable}):
        gone = {"endpoint_id": endpoint_id, "reason": reason}
        await run(connection, "settling/endpoint_gone", gone)
    # After the endpoint: a trigger copies its change to its pace. Lock order: endpoint, then pace.
    paced = concerned(leased, {row["endpoint_id"] for row in rows.values() if row["paced"]})
    changes = dict(await settle_paces(connection, leased, paced))
    settled = [
        # A change is reported once, with the first result of its endpoint.
        Settled(each, rows[claim_of(each)]["due_at"], changes.pop(each.endpoint_id, None))
        for each in leased
    ]
    if repeated and len(leased) < len(settlements):
        settled += await _stored_before(connection, settlements, rows.keys())
    return settled


def _lanes(settlements: Sequence[Settlement]) -> dict[str, object]:
    return {
        "endpoint_ids": [each.endpoint_id for each in settlements],
        "subject_ids": [each.subject_id for each in settlements],
        "tokens": [each.token for each in settlements],
        "delivered": [each.delivered_sequence for each in settlements],
        "attempts": [each.attempt for each in settlements],
        "rescued": [each.rescued for each in settlements],
        "delays_us": [each.delay_us for each in settlements],
        "asked_us": [each.asked_us for each in settlements],
        "stopped": [stops(each.move) for each in settlements],
    }


async def _add_attempts(
    connection: Connection, leased: Sequence[Settlement], rows: dict[Claimed, DictRow]
) -> None:
    """Record the attempts of `leased` settlements; `rows` are those of their lanes."""
    if not any(each.attempts for each in leased):
        return
    # The time of the transaction, the same in every row.
    at = rows[claim_of(leased[0])]["settled_at"].isoformat()
    text = "".join([attempt_rows(each, at, rows[claim_of(each)]["due_at"]) for each in leased])
    async with connection.cursor().copy(statement("settling/attempt_copy")) as copy:
        await copy.write(text)


async def _bury(connection: Connection, leased: Sequence[Settlement]) -> None:
    dead = [(each, each.dead) for each in leased if each.dead is not None]
    if not dead:
        return
    await run(
        connection,
        "settling/dead_letter_add",
        {
            "endpoint_ids": [settlement.endpoint_id for settlement, _ in dead],
            "subject_ids": [settlement.subject_id for settlement, _ in dead],
            "sequences": [letter.sequence for _, letter in dead],
            "keys": [letter.key for _, letter in dead],
            "created_ats": [letter.created_at for _, letter in dead],
            "reasons": [letter.reason.value for _, letter in dead],
            "details": [letter.detail for _, letter in dead],
            "attempts": [letter.attempts for _, letter in dead],
        },
    )


async def _stored_before(
    connection: Connection, settlements: Sequence[Settlement], leased: Iterable[Claimed]
) -> list[Settled]:
    """Find those that an earlier call stored although its COMMIT got no answer."""
    missing = set(map(claim_of, settlements)) - set(leased)
    doubtful = {claim_of(s): s for s in settlements if claim_of(s) in missing and s.attempts}
    recorded = await run(
        connection,
        "settling/attempt_recorded",
        {
            "endpoint_ids": [each.endpoint_id for each in doubtful.values()],
            "subject_ids": [each.subject_id for each in doubtful.values()],
            "tokens": [each.token for each in doubtful.values()],
            "sequences": [each.attempts[0].sequence for each in doubtful.values()],
        },
    )
    return [Settled(doubtful[claimed_row(row)], None) for row in recorded]


def claim_of(settlement: Settlement) -> Claimed:
    """Return the lease of a settlement."""
    return settlement.endpoint_id, settlement.subject_id, settlement.token


def claimed_row(row: DictRow) -> Claimed:
    """Return the lease in a row."""
    return row["endpoint_id"], row["subject_id"], row["token"]


def attempt_rows(settlement: Settlement, settled_at: str, due_at: datetime | None) -> str:
    """Return a settlement's attempts in COPY's text format, with the columns of `attempt_copy`.

    One template writes a row: psycopg's conversion, value by value, takes longer than building the
    request. `settled_at` is in ISO 8601.
    """
    retried = settlement.delay_us is not None and due_at is not None
    token, final = settlement.token.hex, len(settlement.attempts) - 1
    return "".join(
        [
            _ROW
            % (
                settlement.endpoint_id,
                settlement.subject_id,
                each.sequence,
                each.number,
                settled_at,
                token,
                each.outcome.value,
                _NULL if each.status is None else each.status,
                each.duration_ms,
                _text(each.error),
                _text(each.response),
                _text(each.receipt),
                due_at.isoformat() if due_at and retried and place == final else _NULL,
            )
            for place, each in enumerate(settlement.attempts)
        ]
    )


def _text(value: str | None) -> str:
    return _NULL if value is None else value.translate(_ESCAPES)
