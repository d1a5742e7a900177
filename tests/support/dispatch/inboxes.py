"""One delivery through the inbox on each of its four drivers, on a connection of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.receiver import Delivery, Inbox, Receipt, Secret, TakenBack, answer, verify
from holdfast.receiver.sqlalchemy_inbox import connection_of, transaction, transaction_async
from tests.support.dispatch.sender import KEY_BYTES, Sent

Act = Callable[[Receipt], None]
Driver = Callable[[str, Delivery, Act, str], Receipt]

INBOX = Inbox()

SUBJECT = "m_482"
SECRET = Secret(KEY_BYTES)


def delivery(sequence: int = 1, subject: str = SUBJECT, **members: Any) -> Delivery:
    """A verified delivery of a block."""
    sent = Sent.of(subject, "block", sequence, **members)
    return verify(sent.headers, sent.content, [SECRET])


def is_answered(receipt: Receipt) -> bool:
    """Whether a receipt is an answer still, and not taken back."""
    try:
        answer(receipt, SECRET)
    except TakenBack:
        return False
    return True


def on_async_connection(
    dsn: str, case: Callable[[psycopg.AsyncConnection], Awaitable[None]], *, autocommit: bool = True
) -> None:
    """Run `case` with a connection of its own."""

    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as connection:
            await case(connection)

    asyncio.run(run())


def engine_of(dsn: str, **options: object) -> Engine:
    return create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool, **options
    )


def async_engine_of(dsn: str) -> AsyncEngine:
    return create_async_engine(
        "postgresql+psycopg://",
        async_creator=lambda: psycopg.AsyncConnection.connect(dsn),
        poolclass=NullPool,
    )


@contextmanager
def receiving(
    connection: psycopg.Connection[Any], message: Delivery, subject: str = SUBJECT
) -> Iterator[Receipt]:
    """Receive in a transaction of the inbox's that ends with the block."""
    with INBOX.transaction_sync(connection):
        yield INBOX.receive_sync(connection, message, subject=subject)


@asynccontextmanager
async def receiving_async(
    connection: psycopg.AsyncConnection[Any], message: Delivery, subject: str = SUBJECT
) -> AsyncIterator[Receipt]:
    """As `receiving`, on an asynchronous connection."""
    async with INBOX.transaction(connection):
        yield await INBOX.receive(connection, message, subject=subject)


def blocking(dsn: str, message: Delivery, act: Act, subject: str) -> Receipt:
    with (
        psycopg.connect(dsn, autocommit=True) as connection,
        receiving(connection, message, subject) as receipt,
    ):
        _act(connection, receipt, act)
    return receipt


def asynchronous(dsn: str, message: Delivery, act: Act, subject: str) -> Receipt:
    async def run() -> Receipt:
        async with (
            await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection,
            receiving_async(connection, message, subject) as receipt,
        ):
            await _act_async(connection, receipt, act)
        return receipt

    return asyncio.run(run())


def in_a_session(dsn: str, message: Delivery, act: Act, subject: str) -> Receipt:
    with Session(engine_of(dsn)) as session, session.begin(), transaction(session) as connection:
        receipt = INBOX.receive_sync(connection, message, subject=subject)
        _act(connection, receipt, act)
    return receipt


def in_an_async_session(dsn: str, message: Delivery, act: Act, subject: str) -> Receipt:
    async def run() -> Receipt:
        async with (
            AsyncSession(async_engine_of(dsn)) as session,
            session.begin(),
            transaction_async(session) as connection,
        ):
            receipt = await INBOX.receive(connection, message, subject=subject)
            await _act_async(connection, receipt, act)
        return receipt

    return asyncio.run(run())


def on_a_connection(connection: Connection, message: Delivery, subject: str) -> Receipt:
    """Join whatever transaction a connection of SQLAlchemy's has."""
    return INBOX.receive_sync(connection_of(connection), message, subject=subject)


def _act(connection: psycopg.Connection[Any], receipt: Receipt, act: Act) -> None:
    """Act, then store the result that a new delivery was given."""
    known = receipt.result
    act(receipt)
    if receipt.result is not known:
        INBOX.store_result_sync(connection, receipt, receipt.result)


async def _act_async(connection: psycopg.AsyncConnection[Any], receipt: Receipt, act: Act) -> None:
    known = receipt.result
    act(receipt)
    if receipt.result is not known:
        await INBOX.store_result(connection, receipt, receipt.result)


DRIVERS: dict[str, Driver] = {
    "blocking": blocking,
    "asynchronous": asynchronous,
    "session": in_a_session,
    "async session": in_an_async_session,
}
