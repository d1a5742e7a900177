"""The inbox: one delivery, one business action, in the service's own transaction.

    async with connection.transaction():
        async with inbox.receive(connection, delivery, subject=merchant) as receipt:
            if receipt.outcome is ReceiptOutcome.APPLIED:
                ...  # the action; it commits together with the key, or neither does

`claim/block.py` decides which messages to send; this module sends them on psycopg connections.
`sqlalchemy_inbox.py` runs the steps of `claim/claiming.py` in a SQLAlchemy session.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from holdfast.receiver.claim import claiming
from holdfast.receiver.claim.block import UNCANCELLED, UNDO_ALL, Block, Raw, State
from holdfast.receiver.claim.one_trip import Texts
from holdfast.receiver.claim.overlap import Frame
from holdfast.receiver.ddl import ddl
from holdfast.receiver.message.receipt import Receipt
from holdfast.receiver.message.verify import Delivery
from holdfast.receiver.message.window import (
    KEY_WINDOW_DEFAULT,
    PRUNE_MAX,
    key_window_text,
    prune_parameters,
)

SCHEMA = "payouts"

_T = TypeVar("_T")
_Steps = Generator[bytes, Raw, _T]
_Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

_STATES: dict[int, State] = {
    TransactionStatus.IDLE: State.IDLE,
    TransactionStatus.INTRANS: State.OPEN,
    TransactionStatus.INERROR: State.FAILED,
}


@dataclass(slots=True)
class _Known:
    """State kept for a connection, without a reference to it."""

    made: dict[str, int] = field(default_factory=dict)
    """Number of claims sent, by statement name: a claim is prepared after enough of them."""
    frames: list[Frame] = field(default_factory=list)
    """The frames of its open blocks."""


_known: WeakKeyDictionary[_Connection, _Known] = WeakKeyDictionary()


class Inbox:
    """The inbox tables of one schema. Holds no connection and can be shared.

    `window` is the minimum time that keys are kept (None: forever); answers declare it to the
    sender. Raises `ValueError` for a window shorter than retries and replays, or an invalid schema.
    """

    def __init__(
        self, schema: str = SCHEMA, *, window: timedelta | None = KEY_WINDOW_DEFAULT
    ) -> None:
        self._schema = schema
        self._window = window
        self._key_window = key_window_text(window)
        self._statements = {name: text.encode() for name, text in claiming.composed(schema).items()}
        self._texts = Texts(schema)

    @property
    def window(self) -> timedelta | None:
        """Minimum time that keys are kept; None: forever."""
        return self._window

    @property
    def ddl(self) -> sql.SQL:
        """The statements that create the schema and its tables if they do not exist."""
        return sql.SQL(ddl(self._schema))

    def receive(
        self, connection: psycopg.AsyncConnection[Any], delivery: Delivery, *, subject: str
    ) -> AbstractAsyncContextManager[Receipt]:
        """Claim the delivery's key; the block applies the action if the outcome is `applied`.

        Runs as a savepoint in the open transaction of `connection`, or in its own transaction. An
        exception in the block also rolls back the key. Raises `psycopg.Error`; `TakenBack` if the
        block ended the transaction, left it failed, or overlapped with another one on `connection`;
        `TypeError` or `ValueError` for a result that cannot be stored (`Receipt.result`).
        """
        session = _Session(connection)
        return _AsyncReceiving(connection, session, self._block(session, delivery, subject))

    def receive_sync(
        self, connection: psycopg.Connection[Any], delivery: Delivery, *, subject: str
    ) -> AbstractContextManager[Receipt]:
        """Like `receive`, on a blocking connection."""
        session = _Session(connection)
        return _Receiving(connection, session, self._block(session, delivery, subject))

    async def inquire(self, connection: psycopg.AsyncConnection[Any], key: str) -> Receipt | None:
        """Return the first outcome of `key` (`applied` or `stale`), or None if it is unknown."""
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(self._statements["find"], {"key": key})
            return claiming.of_inquiry(key, await cursor.fetchone(), self._key_window)

    def inquire_sync(self, connection: psycopg.Connection[Any], key: str) -> Receipt | None:
        """Like `inquire`, on a blocking connection."""
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(self._statements["find"], {"key": key})
            return claiming.of_inquiry(key, cursor.fetchone(), self._key_window)

    async def prune(
        self, connection: psycopg.AsyncConnection[Any], *, limit: int = PRUNE_MAX
    ) -> int:
        """Delete up to `limit` keys older than the window, oldest first; return their number.

        Call it again while it returns `limit`. The sequences of subjects stay, so a repeat of a
        deleted key is `stale`. Raises `ValueError` for an inbox that keeps keys forever.
        """
        parameters = prune_parameters(self._window, limit)
        async with connection.transaction(), connection.cursor() as cursor:
            await cursor.execute(self._statements["prune"], parameters)
            return cursor.rowcount

    def prune_sync(self, connection: psycopg.Connection[Any], *, limit: int = PRUNE_MAX) -> int:
        """Like `prune`, on a blocking connection."""
        parameters = prune_parameters(self._window, limit)
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(self._statements["prune"], parameters)
            return cursor.rowcount

    def _block(self, session: "_Session", delivery: Delivery, subject: str) -> Block:
        steps = claiming.claim(self._schema, self._key_window, delivery, subject)
        return Block(self._texts, session, steps)


class _Session:
    """The view of a connection that a block gets."""

    __slots__ = ("_connection", "_depth", "_known", "can_cancel", "frames", "sent")

    def __init__(self, connection: _Connection) -> None:
        known = _known.get(connection)
        if known is None:
            known = _known[connection] = _Known()
        self._connection = connection
        self._known = known
        self._depth = 0
        self.can_cancel = isinstance(connection, psycopg.AsyncConnection)
        self.frames = known.frames
        self.sent = 0

    def hold(self, frame: Frame) -> None:
        """Make the driver refuse `commit()` and `rollback()`, as in its own transactions.

        This increments the driver's private transaction counter; there is no public one.
        """
        self._depth = self._connection._num_transactions  # noqa: SLF001 - see above
        self._connection._num_transactions = self._depth + 1  # noqa: SLF001 - see above
        self.frames.append(frame)

    def let_go(self, frame: Frame) -> bool:
        """Undo `hold`, unless the driver already has: the counter must not go below zero.

        Returns whether exactly the transactions begun on the connection since `hold` have ended.
        """
        left = max(self._connection._num_transactions - 1, 0)  # noqa: SLF001 - see `hold`
        self._connection._num_transactions = left  # noqa: SLF001 - see `hold`
        if left == self._depth:
            return True
        if not left and self._connection.autocommit:
            # The enclosing transaction ended too early, and the driver will not send its end.
            frame.undo, frame.owns_transaction = UNDO_ALL, True
        return False

    def close(self) -> None:
        self._connection.pgconn.finish()

    def state(self) -> State:
        return _STATES.get(self._connection.pgconn.transaction_status, State.LOST)

    def begin(self) -> bytes:
        level, read_only = self._connection.isolation_level, self._connection.read_only
        deferrable = self._connection.deferrable
        text = "BEGIN"
        if level is not None:
            text += f" ISOLATION LEVEL {level.name.replace('_', ' ')}"
        if read_only is not None:
            text += " READ ONLY" if read_only else " READ WRITE"
        if deferrable is not None:
            text += " DEFERRABLE" if deferrable else " NOT DEFERRABLE"
        return text.encode()

    def prepare_threshold(self) -> int | None:
        return self._connection.prepare_threshold

    def made(self, name: str) -> int:
        made = self._known.made.get(name, 0)
        self._known.made[name] = made + 1
        return made

    def exchange(self, text: bytes) -> PQGen[list[PGresult]]:
        """Send `text` and read all results. The caller holds the connection's lock.

        The lock is held from reading the connection's state to the last message, so that another
        task's statement runs before all of it or after, and cannot prevent a rollback.
        """
        self.sent += 1  # first, because an interrupt may come between the two
        self._connection.pgconn.send_query(text)
        results: list[PGresult] = yield from execute(self._connection.pgconn)
        return results

    def forget(self) -> PQGen[None]:
        """Clear the driver's prepared statements, as the driver does after each `ROLLBACK`.

        Their plans may depend on what was rolled back.
        """
        prepared = self._connection._prepared  # noqa: SLF001 - there is no public API
        prepared.clear()
        yield from prepared.maintain_gen(self._connection)

    def first(self, results: list[PGresult]) -> Raw:
        """Return the first row of the last result, or raise the server's error."""
        last = results[-1]
        if last.status == ExecStatus.TUPLES_OK:
            if not last.ntuples:
                return None
            return [last.get_value(0, column) for column in range(last.nfields)]
        if last.status == ExecStatus.COMMAND_OK:
            return None
        raise error_from_result(last, encoding=self._connection.info.encoding)


class _Receiving(AbstractContextManager[Receipt]):
    """The context manager of `Inbox.receive_sync`."""

    def __init__(
        self, connection: psycopg.Connection[Any], session: _Session, block: Block
    ) -> None:
        self._connection = connection
        self._session = session
        self._block = block

    def __enter__(self) -> Receipt:
        with self._connection.lock:
            receipt = self._run(self._block.enter())
            self._session.hold(self._block.frame)
        return receipt

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            self._connection.lock.acquire()
        except BaseException:
            self._session.let_go(self._block.frame)
            self._block.abandon()
            raise
        try:
            in_turn = self._session.let_go(self._block.frame)
            self._run(self._block.leave(ended_well=error is None, in_turn=in_turn))
        finally:
            self._connection.lock.release()
        return _is_asked_for(error)

    def _run(self, steps: _Steps[_T]) -> _T:
        raw: Raw = None
        failure: BaseException | None = None
        while True:
            try:
                text = steps.send(raw) if failure is None else steps.throw(failure)
            except StopIteration as done:
                result: _T = done.value
                return result
            raw = failure = None
            try:
                raw = self._send(text)
            except BaseException as error:  # noqa: BLE001 - thrown into the steps, which raise it
                failure = error

    def _send(self, text: bytes) -> Raw:
        raw = self._session.first(self._connection.wait(self._session.exchange(text)))
        if text.startswith(_ROLLBACK):
            self._connection.wait(self._session.forget())
        return raw


class _AsyncReceiving(AbstractAsyncContextManager[Receipt]):
    """The context manager of `Inbox.receive`."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], session: _Session, block: Block
    ) -> None:
        self._connection = connection
        self._session = session
        self._block = block

    async def __aenter__(self) -> Receipt:
        async with self._connection.lock:
            receipt = await self._run(self._block.enter())
            self._session.hold(self._block.frame)
        return receipt

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            await self._connection.lock.acquire()
        except BaseException:
            self._session.let_go(self._block.frame)
            self._block.abandon()
            raise
        try:
            in_turn = self._session.let_go(self._block.frame)
            await self._run(self._block.leave(ended_well=error is None, in_turn=in_turn))
        finally:
            self._connection.lock.release()
        return _is_asked_for(error)

    async def _run(self, steps: _Steps[_T]) -> _T:
        raw: Raw = None
        failure: BaseException | None = None
        while True:
            try:
                text = steps.send(raw) if failure is None else steps.throw(failure)
            except StopIteration as done:
                result: _T = done.value
                return result
            raw = failure = None
            try:
                raw = await self._send(text)
            except BaseException as error:  # noqa: BLE001 - thrown into the steps, which raise it
                failure = error

    async def _send(self, text: bytes) -> Raw:
        answered = self._connection.wait(self._session.exchange(text))
        if text.startswith(UNCANCELLED):
            answered = self._to_its_end(answered)
        raw = self._session.first(await answered)
        if text.startswith(_ROLLBACK):
            await self._connection.wait(self._session.forget())
        return raw

    async def _to_its_end(self, answered: Coroutine[Any, Any, _T]) -> _T:
        """Wait for an answer also when cancelled; then raise the cancellation."""
        task = asyncio.ensure_future(answered)
        # A failure behind the cancellation is nobody's: asyncio would log it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            try:
                await asyncio.wait([task], timeout=_SILENCE_SECONDS)
            finally:
                if not task.done():
                    self._session.close()
            raise


_ROLLBACK = b"ROLLBACK"

_SILENCE_SECONDS = 5.0
"""After a cancellation, a connection without an answer for this time is closed, as by psycopg."""


def _is_asked_for(error: BaseException | None) -> bool:
    """Return whether the block raised `psycopg.Rollback` to roll itself back."""
    return isinstance(error, psycopg.Rollback) and error.transaction is None
