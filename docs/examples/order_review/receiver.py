"""The receiver: holds and releases orders in its own table, once per decision.

uvicorn receiver:app --port 8099
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Response
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from holdfast.receiver import Body, Delivery, Inbox, Secret, answer
from holdfast.receiver.fastapi import answer_problems, respond, verified_delivery

TABLE = """
CREATE TABLE IF NOT EXISTS order_review_orders (
    order_id text PRIMARY KEY,
    held boolean NOT NULL,
    policy_version text NOT NULL,
    changes integer NOT NULL DEFAULT 1
)
"""
CHANGE = """
INSERT INTO order_review_orders AS own (order_id, held, policy_version) VALUES (%s, %s, %s)
ON CONFLICT (order_id) DO UPDATE SET
    held = excluded.held, policy_version = excluded.policy_version, changes = own.changes + 1
"""

inbox, secrets = Inbox(schema="orders"), [Secret.load("env:HOLDFAST_SECRET_ORDERS")]
pool = AsyncConnectionPool(os.environ["ORDERS_DSN"], open=False)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    async with pool:
        async with pool.connection() as connection:
            await connection.execute(inbox.ddl)
            await connection.execute(TABLE)
        yield


app = FastAPI(lifespan=lifespan)
answer_problems(app)


@app.post("/webhooks")
async def webhook(delivery: Annotated[Delivery, Depends(verified_delivery(secrets))]) -> Response:
    delivery.body.require_type("order_review.hold", "order_review.release")
    order = delivery.body.text("order_id")
    async with pool.connection() as connection, inbox.transaction(connection):
        receipt = await inbox.receive(connection, delivery, subject=order)
        if receipt.outcome == "applied":
            await change(connection, order, delivery.body)
    return respond(answer(receipt, delivery.secret))


async def change(connection: AsyncConnection[Any], order: str, body: Body) -> None:
    """The action: it commits with the inbox's key, or neither does."""
    held = body.type == "order_review.hold"
    await connection.execute(CHANGE, [order, held, body.text("policy_version")])


@app.get("/orders")
async def orders() -> list[dict[str, Any]]:
    async with pool.connection() as connection:
        rows = await connection.execute(
            "SELECT order_id, held, policy_version, changes FROM order_review_orders ORDER BY 1"
        )
        names = [each.name for each in rows.description or ()]
        return [dict(zip(names, row, strict=True)) for row in await rows.fetchall()]
