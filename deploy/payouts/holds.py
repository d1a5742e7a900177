"""Holds in the database: apply a delivery, and list what is held.

A transition that the current hold does not allow (a block of a held merchant, a release of one that
is not held) changes nothing and is recorded as `refused_transition`. The sender suppresses such
decisions and delivers in order, so the cause is an operator's skip or a fault. It is counted and
shown, and answered as applied, because the merchant already is in the requested state. A person may
decide what is so already, to keep it so: that is no fault, and the hold is that person's then.
"""

import hashlib
from dataclasses import asdict
from enum import StrEnum
from typing import Any, assert_never

import psycopg
from psycopg.rows import DictRow

from holdfast.deploy.payouts.database import statement
from holdfast.deploy.payouts.order import Action, HoldOrder
from holdfast.receiver import Delivery

Connection = psycopg.AsyncConnection[DictRow]


class Effect(StrEnum):
    APPLIED = "applied"
    REFUSED_TRANSITION = "refused_transition"


async def arrive(connection: Connection) -> int:
    """Return the number of this arrival."""
    row = await (await connection.execute(statement("arrive"))).fetchone()
    if row is None:
        raise AssertionError("nextval returned no row")
    number: int = row["arrival"]
    return number


async def apply(
    connection: Connection, delivery: Delivery, order: HoldOrder, arrival: int
) -> Effect:
    """Change the merchant's hold and append to its history, in the caller's transaction."""
    values = asdict(order) | {"key": delivery.key, "sequence": delivery.body.sequence}
    changed = await connection.execute(_change(order.action), values)
    is_right = await changed.fetchone() is not None or order.is_by_hand
    effect = Effect.APPLIED if is_right else Effect.REFUSED_TRANSITION
    values |= {"arrival": arrival, "effect": effect.value, "action": order.action.value}
    await connection.execute(statement("record_transition"), values)
    return effect


def _change(action: Action) -> bytes:
    match action:
        case Action.BLOCK:
            return statement("block")
        case Action.RELEASE:
            return statement("release")
        case _:
            assert_never(action)


async def log(
    connection: Connection, delivery: Delivery, *, arrival: int, subject: str | None, outcome: str
) -> None:
    """Append the delivery to the log; `outcome` is that of the receipt, or `refused`."""
    await connection.execute(
        statement("log_delivery"),
        {
            "arrival": arrival,
            "key": delivery.key,
            "type": delivery.body.type,
            "subject": subject,
            "sequence": delivery.body.sequence,
            "outcome": outcome,
            "body_sha256": hashlib.sha256(delivery.raw).digest(),
        },
    )


async def list_held(connection: Connection, *, after: str, limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` held merchants whose id sorts after `after`."""
    cursor = await connection.execute(statement("list_held"), {"after": after, "limit": limit})
    return await cursor.fetchall()


async def list_transitions(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest transitions, newest first."""
    cursor = await connection.execute(statement("list_transitions"), {"limit": limit})
    return await cursor.fetchall()


async def count_held(connection: Connection) -> int:
    """Return how many merchants are held."""
    row = await (await connection.execute(statement("count_held"))).fetchone()
    return int(row["held"]) if row else 0


async def count(connection: Connection) -> dict[str, int]:
    """Return how many merchants are held, and how many deliveries had each outcome."""
    row = await (await connection.execute(statement("count"))).fetchone()
    return dict(row or {})
