"""The psycopg connection of an SQLAlchemy transaction, for the methods of `Inbox`.

    with Session(engine) as session, session.begin(), transaction(session) as connection:
        receipt = inbox.receive_sync(connection, delivery, subject=merchant)
        if receipt.outcome == "applied":
            session.add(Hold(...))

It joins the transaction of a `Session`, `Connection`, `AsyncSession` or `AsyncConnection`, or
begins one as any statement does, and never commits. It needs `postgresql+psycopg://`.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, cast

import psycopg

from holdfast.receiver.errors import UnsupportedDriver
from holdfast.receiver.inbox import block, must_be_open
from holdfast.sink.contract.extras import needs

with needs("holdfast.receiver.sqlalchemy_inbox", "receiver-sqlalchemy", "sqlalchemy"):
    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

if TYPE_CHECKING:
    # SQLAlchemy's asyncio package needs greenlet, which a blocking service may not have.
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession


@contextmanager
def transaction(session: Session | Connection) -> Iterator[psycopg.Connection[Any]]:
    """A savepoint that is released or raises, like `Inbox.transaction`; yields its connection.

    A session flushes the block's changes at its end.
    """
    with block(connection_of(session)), session.begin_nested():
        # Again, because a session sets its savepoint on first use of its connection.
        connection = connection_of(session)
        yield connection
        must_be_open(connection)


@asynccontextmanager
async def transaction_async(
    session: "AsyncSession | AsyncConnection",
) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Like `transaction`, in an asynchronous session or connection."""
    with block(await async_connection_of(session)):
        async with session.begin_nested():
            connection = await async_connection_of(session)
            yield connection
            must_be_open(connection)


def connection_of(session: Session | Connection) -> psycopg.Connection[Any]:
    """Return the driver's connection of the transaction; raises `UnsupportedDriver`."""
    connection = session if isinstance(session, Connection) else session.connection()
    return cast("psycopg.Connection[Any]", _driver(connection))


async def async_connection_of(
    session: "AsyncSession | AsyncConnection",
) -> psycopg.AsyncConnection[Any]:
    """Like `connection_of`, of an asynchronous session or connection."""
    from sqlalchemy.ext.asyncio import AsyncConnection  # noqa: PLC0415 - see above

    connection = session if isinstance(session, AsyncConnection) else await session.connection()
    return cast("psycopg.AsyncConnection[Any]", await connection.run_sync(_driver))


def _driver(connection: Connection) -> Any:
    driver, dialect = connection.connection.driver_connection, connection.dialect
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection):
        raise UnsupportedDriver(
            f"the inbox requires postgresql+psycopg, not {dialect.name}+{dialect.driver}."
            " Nothing was written; create the engine with postgresql+psycopg://..."
        )
    if not connection.in_transaction():
        connection.begin()  # as any statement of SQLAlchemy's does, so that it ends what we begin
    return driver
