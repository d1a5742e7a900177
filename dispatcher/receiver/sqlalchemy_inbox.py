"""The inbox in an existing SQLAlchemy transaction of the service.

    with Session(engine) as session, session.begin():
        with inbox.receive(session, delivery, subject=merchant) as receipt:
            if receipt.outcome is ReceiptOutcome.APPLIED:
                session.add(Hold(...))

It joins the transaction of a `Session`, `Connection`, `AsyncSession` or `AsyncConnection` as a
savepoint. If none is open, it begins one, as any statement does. It never commits: the service
commits before it answers. The steps are those of `claim/claiming.py`.

It supports only Postgres through psycopg 3 (`postgresql+psycopg://`, blocking or async), because
statements are passed to the driver unchanged.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from holdfast.receiver.claim import claiming
from holdfast.receiver.errors import UnsupportedDriver
from holdfast.receiver.message.receipt import Receipt
from holdfast.receiver.message.verify import Delivery
from holdfast.receiver.message.window import (
    KEY_WINDOW_DEFAULT,
    PRUNE_MAX,
    key_window_text,
    prune_parameters,
)

if TYPE_CHECKING:
    # SQLAlchemy's asyncio package needs greenlet, which a blocking service may not have.
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

SCHEMA = "payouts"


class SqlAlchemyInbox:
    """Like `Inbox`: the tables of one schema, without a connection or state.

    Every method raises `UnsupportedDriver` before writing anything if the session does not use
    psycopg or is in autocommit mode. Other errors are SQLAlchemy's.
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
        """Claim the delivery's key; the block applies the action if the outcome is `applied`.

        An exception in the block also rolls back the key, as does a later rollback. Raises
        `TakenBack` if the block ended the transaction or left it failed, and `TypeError` or
        `ValueError` for a result that cannot be stored (`Receipt.result`).
        """
        _connection(session)
        with _noting_failure() as end, session.begin_nested() as savepoint:
            # Again, because a session creates its savepoint on first use of its connection.
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
        """Like `receive`, in an asynchronous session or connection."""
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
        """Return the first outcome of `key` (`applied` or `stale`), or None if it is unknown."""
        row = self._first(_connection(session), "find", {"key": key})
        return claiming.of_inquiry(key, row, self._key_window)

    async def inquire_async(
        self, session: "AsyncSession | AsyncConnection", key: str
    ) -> Receipt | None:
        """Like `inquire`, in an asynchronous session or connection."""
        connection = await _async_connection(session)
        row = await connection.run_sync(self._first, "find", {"key": key})
        return claiming.of_inquiry(key, row, self._key_window)

    def prune(self, session: Session | Connection, *, limit: int = PRUNE_MAX) -> int:
        """Delete up to `limit` keys older than the window, like `Inbox.prune` but uncommitted."""
        parameters = prune_parameters(self._window, limit)
        return self._run(_connection(session), "prune", parameters)

    async def prune_async(
        self, session: "AsyncSession | AsyncConnection", *, limit: int = PRUNE_MAX
    ) -> int:
        """Like `prune`, in an asynchronous session or connection."""
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
    """The progress of a block, for its end."""

    receipt: Receipt | None = None
    is_near: bool = False
    """The service's block succeeded: a failure from here on is one of the savepoint's end."""


@contextmanager
def _noting_failure() -> Iterator[_End]:
    """Mark the receipt as taken back if its savepoint fails, so that it cannot be answered.

    It encloses the savepoint, because a session flushes the block's changes at its end.
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
    """Return whether the transaction is open and not failed, without a round trip."""
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
            f"the inbox requires postgresql+psycopg, not {dialect.name}+{dialect.driver}."
            " Nothing was written; create the engine with postgresql+psycopg://..."
        )
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise UnsupportedDriver(
            "this connection is in AUTOCOMMIT mode, so key and action cannot commit together."
            " Nothing was written; use an isolation level."
        )
    return connection


_GONE = frozenset({"3B001", "25P01", "25P02"})
"""invalid_savepoint_specification, no_active_sql_transaction, in_failed_sql_transaction."""
_IN_TRANSACTION = "INTRANS"
"""psycopg's status of an open transaction without an error."""
_DRIVERS = {("postgresql", "psycopg"), ("postgresql", "psycopg_async")}
