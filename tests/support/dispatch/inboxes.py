"""One delivery through the inbox on each of its four drivers, on a connection of its own."""

import asyncio
from collections.abc import Callable

import psycopg
from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.receiver import Delivery, Inbox, Receipt, SqlAlchemyInbox

Act = Callable[[Receipt], None]
Driver = Callable[[str, Delivery, Act, str], Receipt]


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


def blocking(dsn: str, given: Delivery, act: Act, subject: str) -> Receipt:
    with (
        psycopg.connect(dsn, autocommit=True) as connection,
        Inbox().receive_sync(connection, given, subject=subject) as receipt,
    ):
        act(receipt)
    return receipt


def asynchronous(dsn: str, given: Delivery, act: Act, subject: str) -> Receipt:
    async def run() -> Receipt:
        async with (
            await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection,
            Inbox().receive(connection, given, subject=subject) as receipt,
        ):
            act(receipt)
        return receipt

    return asyncio.run(run())


def in_a_session(dsn: str, given: Delivery, act: Act, subject: str) -> Receipt:
    with (
        Session(engine_of(dsn)) as session,
        session.begin(),
        SqlAlchemyInbox().receive(session, given, subject=subject) as receipt,
    ):
        act(receipt)
    return receipt


def in_an_async_session(dsn: str, given: Delivery, act: Act, subject: str) -> Receipt:
    async def run() -> Receipt:
        async with (
            AsyncSession(async_engine_of(dsn)) as session,
            session.begin(),
            SqlAlchemyInbox().receive_async(session, given, subject=subject) as receipt,
        ):
            act(receipt)
        return receipt

    return asyncio.run(run())


def on_a_connection(connection: Connection, given: Delivery, subject: str) -> Receipt:
    """Join whatever transaction a connection of SQLAlchemy's has."""
    with SqlAlchemyInbox().receive(connection, given, subject=subject) as receipt:
        return receipt


DRIVERS: dict[str, Driver] = {
    "blocking": blocking,
    "asynchronous": asynchronous,
    "session": in_a_session,
    "async session": in_an_async_session,
}
