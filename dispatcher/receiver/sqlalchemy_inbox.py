"""The inbox in a transaction of SQLAlchemy's that the service already has.

    with Session(engine) as session, session.begin():
        with inbox.receive(session, delivery, subject=merchant) as receipt:
            if receipt.outcome is ReceiptOutcome.APPLIED:
                session.add(Hold(...))

It joins the transaction of a `Session`, a `Connection`, an `AsyncSession` or an `AsyncConnection`
as a savepoint, begins one where none is open, as any statement would, and never commits: that is
the service's to do, before it answers. The steps are those of `claiming.py`.

Postgres through psycopg 3 alone (`postgresql+psycopg://`, blocking or not): the statements are
given to the driver as they are.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from dispatcher.receiver.claim import claiming
from dispatcher.receiver.errors import UnsupportedDriver
from dispatcher.receiver.message.receipt import Receipt
from dispatcher.receiver.message.verify import Delivery
from dispatcher.receiver.message.window import (
    KEY_WINDOW_DEFAULT,
    PRUNE_MAX,
    key_window_text,
    prune_parameters,
)

if TYPE_CHECKING:
    # SQLAlchemy's asyncio part cannot be imported without greenlet, which a blocking service lacks.
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

SCHEMA = "payouts"


class SqlAlchemyInbox:
    """As `Inbox`: the tables of one schema, without a connection or a state of its own.

    Every method raises `UnsupportedDriver` before anything is written when the session is not on
    psycopg or commits each statement by itself; else errors are SQLAlchemy's.
    """

    def __init__(
        self, schema: str = SCHEMA, *, window: timedelta | None = KEY_WINDOW_DEFAULT
    ) -> None:
        self._schema = schema
        self._window = window
        self._key_window = key_window_text(window)
        self._statements = claiming.composed(schema)

    @contextmanager
    def receive(
        self, session: Session | Connection, delivery: Delivery, *, subject: str
    ) -> Iterator[Receipt]:
        """Claim the delivery's key; the block applies it when the outcome is `applied`.

        Raising inside the block takes the key back as well, and so does a rollback afterwards.
        Raises `TakenBack` for a block that ended the transaction, or left it failed, and
        `TypeError` or `ValueError` for a result that cannot be kept (`Receipt.result`).
        """
        _connection(session)
        with _noting_failure() as end, session.begin_nested() as savepoint:
            # Again: a session makes its savepoint when it is first asked for the connection in it.
            connection = _connection(session)
            steps = claiming.claim(self._schema, self._key_window, delivery, subject)
            row: claiming.Row | None = None
            while True:
                try:
                    name, parameters = steps.send(row)
                except StopIteration as done:
                    end.receipt = receipt = done.value
                    break
                row = self._first(connection, name, parameters)
            yield receipt
            end.is_near = True
            claiming.must_be_open(open_=savepoint.is_active and _is_open(connection))
            if claiming.has_new_result(receipt):
                self._run(connection, "keep_result", claiming.result_of(receipt))
            claiming.passed_apply(receipt)

    @asynccontextmanager
    async def receive_async(
        self, session: "AsyncSession | AsyncConnection", delivery: Delivery, *, subject: str
    ) -> AsyncIterator[Receipt]:
        """Do as `receive` does, in an asynchronous session or connection."""
        await _async_connection(session)
        with _noting_failure() as end:
            async with session.begin_nested() as savepoint:
                connection = await _async_connection(session)
                steps = claiming.claim(self._schema, self._key_window, delivery, subject)
                row: claiming.Row | None = None
                while True:
                    try:
                        name, parameters = steps.send(row)
                    except StopIteration as done:
                        end.receipt = receipt = done.value
                        break
                    row = await connection.run_sync(self._first, name, parameters)
                yield receipt
                end.is_near = True
                open_ = savepoint.is_active and await connection.run_sync(_is_open)
                claiming.must_be_open(open_=open_)
                if claiming.has_new_result(receipt):
                    result = claiming.result_of(receipt)
                    await connection.run_sync(self._run, "keep_result", result)
                claiming.passed_apply(receipt)

    def inquire(self, session: Session | Connection, key: str) -> Receipt | None:
        """Return what the first delivery of `key` was answered (`applied`, `stale`), or None."""
        row = self._first(_connection(session), "find", {"key": key})
        return claiming.of_inquiry(key, row, self._key_window)

    async def inquire_async(
        self, session: "AsyncSession | AsyncConnection", key: str
    ) -> Receipt | None:
        """Do as `inquire` does, in an asynchronous session or connection."""
        connection = await _async_connection(session)
        row = await connection.run_sync(self._first, "find", {"key": key})
        return claiming.of_inquiry(key, row, self._key_window)

    def prune(self, session: Session | Connection, *, limit: int = PRUNE_MAX) -> int:
        """Forget up to `limit` keys older than the window; as `Inbox.prune`, without its commit."""
        parameters = prune_parameters(self._window, limit)
        return self._run(_connection(session), "prune", parameters)

    async def prune_async(
        self, session: "AsyncSession | AsyncConnection", *, limit: int = PRUNE_MAX
    ) -> int:
        """Do as `prune` does, in an asynchronous session or connection."""
        parameters = prune_parameters(self._window, limit)
        connection = await _async_connection(session)
        return await connection.run_sync(self._run, "prune", parameters)

    def _first(
        self, connection: Connection, name: str, parameters: dict[str, Any]
    ) -> claiming.Row | None:
        return connection.exec_driver_sql(self._statements[name], parameters).first()

    def _run(self, connection: Connection, name: str, parameters: dict[str, Any]) -> int:
        return connection.exec_driver_sql(self._statements[name], parameters).rowcount


@dataclass(slots=True)
class _End:
    """What is known where a block ends."""

    receipt: Receipt | None = None
    is_near: bool = False
    """The service's block has ended well: what fails now is the end of the savepoint."""


@contextmanager
def _noting_failure() -> Iterator[_End]:
    """Note in the receipt that its savepoint did not end well: there is nothing to answer.

    Around the savepoint, because a session writes what the block added when it ends.
    """
    end = _End()
    try:
        yield end
    except BaseException as error:
        if end.receipt is not None:
            end.receipt.taken_back = True
        state = getattr(getattr(error, "orig", None), "sqlstate", None)
        claiming.must_be_open(open_=not end.is_near or state not in _GONE)
        raise


def _is_open(connection: Connection) -> bool:
    """Whether the database's transaction is open and goes well; asks nothing of the server."""
    driver: Any = connection.connection.driver_connection
    return bool(driver.info.transaction_status.name == _IN_TRANSACTION)


def _connection(session: Session | Connection) -> Connection:
    return _accepted(session if isinstance(session, Connection) else session.connection())


async def _async_connection(session: "AsyncSession | AsyncConnection") -> "AsyncConnection":
    from sqlalchemy.ext.asyncio import AsyncConnection  # noqa: PLC0415 - see above

    connection = session if isinstance(session, AsyncConnection) else await session.connection()
    await connection.run_sync(_accepted)
    return connection


def _accepted(connection: Connection) -> Connection:
    dialect = connection.dialect
    if (dialect.name, dialect.driver) not in _DRIVERS:
        raise UnsupportedDriver(
            f"the inbox runs on postgresql+psycopg, not on {dialect.name}+{dialect.driver}."
            " Nothing was written; make the engine with postgresql+psycopg://..."
        )
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise UnsupportedDriver(
            "this connection commits each statement by itself (AUTOCOMMIT), so that key and action"
            " could not commit together. Nothing was written; use an isolation level."
        )
    return connection


_GONE = frozenset({"3B001", "25P01", "25P02"})
"""invalid_savepoint_specification, no_active_sql_transaction, in_failed_sql_transaction."""
_IN_TRANSACTION = "INTRANS"
"""psycopg's name for a transaction that is open and idle."""
_DRIVERS = {("postgresql", "psycopg"), ("postgresql", "psycopg_async")}
