"""Claims and settles replay items behind live traffic, and rescues their leases.

An item whose entry is sent again has its own lease and is handled as a lane of one entry; the
subject's lane does not change. Other items only move their lane, which live traffic continues.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from psycopg.rows import DictRow

from holdfast.dispatcher.delivery.rules.lease import SETTLE_SECONDS
from holdfast.dispatcher.delivery.rules.pace import Allowance, allowance, as_of, claimed
from holdfast.dispatcher.delivery.rules.replays import (
    ReplayRate,
    ReplayRequest,
    ReplayTurn,
    affordable,
    allowed_for_replay,
    bounded,
    item_after,
    paid,
)
from holdfast.dispatcher.delivery.rules.values import Entry, Lane, Rescued, Settled, Settlement
from holdfast.dispatcher.delivery.store.messages import run
from holdfast.dispatcher.delivery.store.pacing import LockedPace, pace_step, paces_of, write
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.settlement import claim_of, claimed_row, record
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.rate import BEGIN_SECONDS
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.states import ReplayKind

REPLAYS = 8
"""Maximum number of active replays that one claim handles."""

ITEMS = 64
"""Maximum number of items of one replay that one claim takes."""

_MOVES = {
    ReplayKind.RELEASE: "replaying/replay_release",
    ReplayKind.HASTEN: "replaying/replay_hasten",
}
_MANY = 1_000_000


@dataclass(slots=True)
class _Room:
    """How many items of an endpoint may still be claimed in this transaction."""

    items: int
    locked: LockedPace | None
    allowed: Allowance
    sent: int = 0


async def claim_items(connection: Connection, request: ReplayRequest, started: float) -> ReplayTurn:
    """Claim items in the caller's transaction; see `PostgresStore.claim_replays`."""
    parameters = {"endpoint_ids": list(request.room), "replays": REPLAYS}
    replays = await run(connection, "replaying/replay_applying", parameters)
    if not replays:
        return ReplayTurn()
    rooms = await _rooms(connection, request)
    lanes: list[Lane] = []
    ended: dict[UUID, int] = {}
    moved = item_count = 0
    paced, token = False, request.token
    for replay in replays:
        rate, at = ReplayRate(replay["rate_per_second"], replay["paid_until"]), replay["at"]
        rate = await _bounded(connection, replay["id"], rate, at)
        item_limit = affordable(rate, ITEMS, at)
        rows = (
            await _take(connection, replay, rooms, item_limit, token, request) if item_limit else []
        )
        if not rows:
            finished = await run(connection, "replaying/replay_finish", {"id": replay["id"]})
            ended |= {row["id"]: row["item_count"] for row in finished}
            paced = paced or (item_limit == 0 and not finished)
            continue
        item_count += len(rows)
        # Leases of two replays on one subject must have different tokens.
        lanes += [
            _lane(row, token, rooms[row["endpoint_id"]], request, started) for row in _sent(rows)
        ]
        token = uuid4()
        moved += await _move(connection, replay, rows)
        await _pay(connection, replay["id"], rate, len(rows), at)
    await _charge(connection, rooms, request, lanes)
    return ReplayTurn(lanes, moved, ended, paced, item_count)


async def settle_items(
    connection: Connection, settlements: Sequence[Settlement], *, repeated: bool
) -> list[Settled]:
    """Store results in the caller's transaction; see `PostgresStore.settle_replays`."""
    settled_rows = await run(connection, "replaying/replay_settle", _results(settlements))
    rows = {claimed_row(row): row for row in settled_rows}
    leased = [each for each in settlements if claim_of(each) in rows]
    settled = await record(connection, settlements, leased, rows, repeated=repeated)
    failpoint("D17")
    return settled


async def rescue_items(connection: Connection, items: int) -> list[Rescued]:
    """Record expired leases of items as `unknown`, in the caller's transaction."""
    (leases,) = await run(connection, "replaying/replay_expired")
    if not leases["expired"]:
        return []
    return [
        Rescued(**row) for row in await run(connection, "replaying/replay_rescue", {"items": items})
    ]


async def _rooms(connection: Connection, request: ReplayRequest) -> dict[int, _Room]:
    """Lock the paces of the endpoints and return how much each leaves to replays."""
    paces = paces_of(await run(connection, *pace_step(request.room.keys(), free_too=False)))
    rooms = {}
    for id_, items in request.room.items():
        locked, allowed = paces.get(id_), Allowance(items, 1)
        if locked is not None:
            allowed = allowance(as_of(locked.pace, locked.at), locked.limits, _MANY, 1, locked.at)
        rooms[id_] = _Room(min(items, allowed_for_replay(allowed)), locked, allowed)
    return rooms


async def _take(
    connection: Connection,
    replay: DictRow,
    rooms: Mapping[int, _Room],
    item_limit: int,
    token: UUID,
    request: ReplayRequest,
) -> list[DictRow]:
    free = {id_: room.items for id_, room in rooms.items() if room.items > 0}
    if not free:
        return []
    rows = await run(
        connection,
        "replaying/replay_claim",
        {
            "id": replay["id"],
            "endpoint_ids": list(free),
            "items": list(free.values()),
            "most": item_limit,
            "token": token,
            "lease_seconds": request.lease_seconds,
            "outside_window": replay["outside_window"],
        },
    )
    for id_, count in Counter(row["endpoint_id"] for row in rows).items():
        rooms[id_].items -= count
    return rows


def _sent(rows: Sequence[DictRow]) -> list[DictRow]:
    return [row for row in rows if row["kind"] == ReplayKind.RESEND and not row["gone"]]


async def _move(connection: Connection, replay: DictRow, rows: Sequence[DictRow]) -> int:
    """Release and hasten lanes; returns how many became due."""
    moved = 0
    for kind, name in _MOVES.items():
        items = [row for row in rows if row["kind"] == kind]
        if not items:
            continue
        done = await run(
            connection,
            name,
            {
                "id": replay["id"],
                "endpoint_ids": [row["endpoint_id"] for row in items],
                "subject_ids": [row["subject_id"] for row in items],
                "sequences": [row["sequence"] for row in items],
                "actor": replay["actor"],
                "outside_window": replay["outside_window"],
            },
        )
        moved += sum(row["done"] for row in done)
    return moved


async def _bounded(connection: Connection, id_: UUID, rate: ReplayRate, at: datetime) -> ReplayRate:
    within = bounded(rate, at)
    if within != rate:
        await run(connection, "replaying/replay_paid", {"id": id_, "paid_until": within.paid_until})
    return within


async def _pay(
    connection: Connection, id_: UUID, rate: ReplayRate, items: int, at: datetime
) -> None:
    after = paid(rate, items, at)
    if after != rate.paid_until:
        await run(connection, "replaying/replay_paid", {"id": id_, "paid_until": after})


async def _charge(
    connection: Connection,
    rooms: Mapping[int, _Room],
    request: ReplayRequest,
    lanes: Sequence[Lane],
) -> None:
    sent = Counter(lane.endpoint_id for lane in lanes)
    # A probe is one lane, so its token is that of the endpoint's only lane here.
    tokens = {lane.endpoint_id: lane.token for lane in lanes}
    for id_, count in sent.items():
        locked = rooms[id_].locked
        if locked is not None:
            after = claimed(
                as_of(locked.pace, locked.at),
                rooms[id_].allowed,
                count,
                locked.at,
                tokens[id_],
                request.lease_seconds,
            )
            await write(connection, locked.pace, after)


def _lane(row: DictRow, token: UUID, room: _Room, request: ReplayRequest, started: float) -> Lane:
    until = trusted = started + request.lease_seconds
    if room.locked is not None and room.allowed.rate is not None:
        longest = room.locked.limits.attempt_seconds
        trusted = min(until, seconds() + BEGIN_SECONDS + longest + SETTLE_SECONDS)
    entry = Entry(
        sequence=row["sequence"],
        number=row["number"] + 1,
        key=row["key"],
        created_at=row["created_at"],
        traceparent=row["traceparent"],
        body=bytes(row["body"]),
        # The schedule restarts: attempts before this replay use up none of its steps.
        rescued=row["number"] - row["attempt"],
        forgotten=row["forgotten"],
    )
    return Lane(
        endpoint_id=row["endpoint_id"],
        subject_id=row["subject_id"],
        token=token,
        delivered_sequence=row["sequence"] - 1,
        entries=(entry,),
        trusted_until=trusted,
        settle_until=until,
        claimed_at=started,
        tried_seconds=row["put_off_seconds"],
    )


def _results(settlements: Sequence[Settlement]) -> dict[str, object]:
    after = [item_after(each) for each in settlements]
    return {
        "endpoint_ids": [each.endpoint_id for each in settlements],
        "subject_ids": [each.subject_id for each in settlements],
        "sequences": [_sequence(each) for each in settlements],
        "tokens": [each.token for each in settlements],
        "outcomes": [each.outcome and each.outcome.value for each in after],
        "details": [each.detail for each in after],
        "delays_us": [each.delay_us for each in after],
        "charged": [each.charged for each in after],
        "settled": [each.settled for each in after],
    }


def _sequence(settlement: Settlement) -> int:
    if settlement.attempts:
        return settlement.attempts[0].sequence
    return settlement.delivered_sequence + 1
