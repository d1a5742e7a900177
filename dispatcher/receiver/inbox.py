"""The inbox on psycopg's connections: one delivery, one action, in the service's transaction.

    async with inbox.transaction(connection):
        receipt = await inbox.receive(connection, delivery, subject=merchant)
        if receipt.outcome == "applied":
            ...  # the action; it commits together with the key, or neither does

`inbox.sql` decides the outcome. `receive` joins any open transaction. `transaction` begins one, and
raises where `connection.transaction()` reports success: at the COMMIT of a transaction in which a
statement failed, the server rolls back without an error.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from hashlib import sha256
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import scalar_row
from psycopg.transaction import OutOfOrderTransactionNesting

from holdfast.receiver.ddl import SCHEMA, ddl, quoted
from holdfast.receiver.errors import NoTransaction, TakenBack
from holdfast.receiver.message import window as key_window
from holdfast.receiver.message.receipt import Receipt
from holdfast.receiver.message.verify import Delivery
from holdfast.sink.contract.compatibility import UTC, parse_time
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.wire import ReceiptOutcome

_Async = psycopg.AsyncConnection[Any]
_Sync = psycopg.Connection[Any]

_ROW = (
    "SELECT pg_catalog.encode(pg_catalog.convert_to("
    "pg_catalog.row_to_json(r)::pg_catalog.text, 'UTF8'), 'hex') FROM {schema}."
)
"""JSON in hex, which no setting of the session, no encoding and no loader changes."""
_CALLS = {
    "receive": _ROW + "inbox_receive(%(key)s::pg_catalog.text, %(body_sha256)s::pg_catalog.bytea,"
    " pg_catalog.convert_from(%(subject)s::pg_catalog.bytea, 'UTF8') COLLATE pg_catalog.\"default\""
    ", %(sequence)s::pg_catalog.int8) AS r",
    "find": _ROW + "inbox_find(%(key)s::pg_catalog.text) AS r",
    "result": "SELECT {schema}.inbox_result(%(key)s, %(result)s::pg_catalog.jsonb)",
    "prune": "SELECT {schema}.inbox_prune(pg_catalog.make_interval(secs => %(window_seconds)s),"
    " %(limit)s::pg_catalog.int4)",
}


class Inbox:
    """The inbox of one schema. Holds no connection and can be shared.

    `window` is the minimum time that keys are kept (None: forever); answers declare it to the
    sender. Raises `ValueError` for a window shorter than retries and replays, or an invalid schema.
    """

    def __init__(
        self, schema: str = SCHEMA, *, window: timedelta | None = key_window.KEY_WINDOW_DEFAULT
    ) -> None:
        self.window = window
        self.ddl = sql.SQL(ddl(schema))  # creates or upgrades the tables and functions
        self._key_window = key_window.key_window_text(window)
        # A percent sign in the schema's name would begin a parameter.
        name = quoted(schema).replace("%", "%%")
        self._calls = {call: text.format(schema=name).encode() for call, text in _CALLS.items()}

    @asynccontextmanager
    async def transaction(self, connection: _Async) -> AsyncIterator[None]:
        """A transaction, or a savepoint in the open one, that commits or raises.

        Raises `TakenBack` if a statement in the block failed, if the block ended the transaction,
        or if another task has a block on `connection`. Receipts of a block that was rolled back
        cannot be answered. A transaction that cannot be ended is closed with its connection.
        """
        with block(connection) as mine:
            async with connection.transaction() as mine.transaction:
                yield
                must_be_open(connection)

    @contextmanager
    def transaction_sync(self, connection: _Sync) -> Iterator[None]:
        """Like `transaction`, on a blocking connection."""
        with block(connection) as mine, connection.transaction() as mine.transaction:
            yield
            must_be_open(connection)

    async def receive(self, connection: _Async, delivery: Delivery, *, subject: str) -> Receipt:
        """Claim the delivery's key in the open transaction; act if the outcome is `applied`.

        It waits for no other delivery. Raises `NoTransaction` before writing if the call would be a
        transaction of its own, `TakenBack` if another task has a block on `connection`, and
        `psycopg.Error`.
        """
        value = await self._fetch(connection, "receive", _claim(connection, delivery, subject))
        return self._received(connection, delivery.key, value)

    def receive_sync(self, connection: _Sync, delivery: Delivery, *, subject: str) -> Receipt:
        """Like `receive`, on a blocking connection."""
        value = self._fetch_sync(connection, "receive", _claim(connection, delivery, subject))
        return self._received(connection, delivery.key, value)

    async def store_result(self, connection: _Async, receipt: Receipt, result: Any) -> None:
        """Store the action's own result, in its transaction, for repeats of the delivery.

        Raises `TypeError` or `ValueError` for a result that is no JSON, `psycopg.DataError` for
        one that `jsonb` cannot hold, and `psycopg.errors.NoDataFound` if the key was not applied.
        """
        text = json.dumps(result, allow_nan=False)
        await self._fetch(connection, "result", {"key": receipt.key, "result": text})
        receipt.result = result

    def store_result_sync(self, connection: _Sync, receipt: Receipt, result: Any) -> None:
        """Like `store_result`, on a blocking connection."""
        text = json.dumps(result, allow_nan=False)
        self._fetch_sync(connection, "result", {"key": receipt.key, "result": text})
        receipt.result = result

    async def inquire(self, connection: _Async, key: str) -> Receipt | None:
        """Return the first outcome of `key` (`applied` or `stale`), or None if it is unknown."""
        value = await self._fetch(connection, "find", {"key": key})
        return self._receipt(key, value) if value else None

    def inquire_sync(self, connection: _Sync, key: str) -> Receipt | None:
        """Like `inquire`, on a blocking connection."""
        value = self._fetch_sync(connection, "find", {"key": key})
        return self._receipt(key, value) if value else None

    async def prune(self, connection: _Async, *, limit: int = key_window.PRUNE_MAX) -> int:
        """Delete up to `limit` keys older than the window, oldest first; return their number.

        Call it again while it returns `limit`. The sequences of subjects stay, so a repeat of a
        deleted key is `stale`. Raises `ValueError` for an inbox that keeps keys forever.
        """
        limits = key_window.prune_parameters(self.window, limit)
        async with connection.transaction():
            return int(await self._fetch(connection, "prune", limits))

    def prune_sync(self, connection: _Sync, *, limit: int = key_window.PRUNE_MAX) -> int:
        """Like `prune`, on a blocking connection."""
        limits = key_window.prune_parameters(self.window, limit)
        with connection.transaction():
            return int(self._fetch_sync(connection, "prune", limits))

    async def _fetch(self, connection: _Async, call: str, parameters: Mapping[str, Any]) -> Any:
        # Not `connection.cursor()`, whose class and placeholders are the service's choice.
        async with psycopg.AsyncCursor(connection, row_factory=scalar_row) as cursor:
            await cursor.execute(self._calls[call], parameters)
            return await cursor.fetchone()

    def _fetch_sync(self, connection: _Sync, call: str, parameters: Mapping[str, Any]) -> Any:
        with psycopg.Cursor(connection, row_factory=scalar_row) as cursor:
            cursor.execute(self._calls[call], parameters)
            return cursor.fetchone()

    def _received(self, connection: _Async | _Sync, key: str, value: Any) -> Receipt:
        receipt = self._receipt(key, value)
        if blocks := _blocks.get(connection):
            blocks[-1].receipts.append(receipt)
        if receipt.applied_at and not receipt.replayed:
            failpoint("R2")
        return receipt

    def _receipt(self, key: str, value: str | bytes) -> Receipt:
        text = value.decode() if isinstance(value, bytes) else value  # bytes with SQL_ASCII
        answer = json.loads(bytes.fromhex(text))
        answer["outcome"] = ReceiptOutcome(answer["outcome"].replace("running", "in_progress"))
        if "body_sha256" in answer:
            answer["body_sha256"] = bytes.fromhex(answer["body_sha256"])
        if answer["applied_at"]:
            answer["applied_at"] = parse_time(answer["applied_at"]).astimezone(UTC)
        return Receipt(key, key_window=self._key_window, **answer)


def _claim(connection: _Async | _Sync, delivery: Delivery, subject: str) -> Mapping[str, Any]:
    """Return the parameters; raises `NoTransaction`, which the database refuses as well."""
    if not isinstance(subject, str):
        raise TypeError(f"a subject must be a str, not {type(subject).__name__}")
    must_own(connection)
    status, pipeline = connection.info.transaction_status, connection.info.pipeline_status
    # A pipeline without a transaction commits where it is synchronised, as for a result.
    is_unclear = pipeline and status is not TransactionStatus.INTRANS
    if connection.autocommit and (is_unclear or status is TransactionStatus.IDLE):
        raise NoTransaction(
            "the call would keep the key without the action, because this connection commits each"
            " statement. Nothing was written; call it in `inbox.transaction(connection)`"
        )
    return {
        "key": delivery.key,
        "body_sha256": sha256(delivery.raw).digest(),
        "subject": str.encode(subject),  # not an enum's name, and in any encoding of the session
        "sequence": delivery.body.sequence,
    }


class Block:
    """One open block on a connection: the receipts made in it, and the driver's transaction."""

    transaction: Any = None

    def __init__(self) -> None:
        self.task, self.receipts = _task(), list[Receipt]()


@contextmanager
def block(connection: _Async | _Sync) -> Iterator[Block]:
    """Take back the receipts of a block that is rolled back; raises `TakenBack`."""
    must_own(connection)
    blocks, mine, is_kept = _blocks.setdefault(connection, []), Block(), False
    blocks.append(mine)
    try:
        yield mine
        # `psycopg.Rollback` is swallowed by the transaction.
        is_kept = not mine.transaction or mine.transaction.status == "committed"
    except BaseException as error:
        _close(mine.transaction, error)
        if getattr(getattr(error, "orig", error), "sqlstate", None) in _GONE:
            raise TakenBack(_ENDED) from error
        raise
    finally:
        for receipt in mine.receipts:
            receipt.taken_back |= not is_kept
        blocks.remove(mine)
        if blocks:
            blocks[-1].receipts += mine.receipts


def _close(ending: Any, error: BaseException) -> None:
    """Close the connection if the block's transaction did not end.

    Left open, it would swallow the next delivery, which is answered and never committed.
    """
    # It is still active where its end was cancelled while another task was sending.
    if ending and (
        ending.status is ending.Status.ACTIVE
        or isinstance(error, OutOfOrderTransactionNesting)
        or (not ending.savepoint_name and ending.pgconn.transaction_status)
    ):
        ending.pgconn.finish()


def must_own(connection: _Async | _Sync) -> None:
    """Raise `TakenBack` if another task has a block on this connection."""
    if (blocks := _blocks.get(connection)) and blocks[-1].task != _task():
        raise TakenBack(
            "another task has a delivery in the transaction of this connection, and would end this"
            " one with it. Nothing was written; use one connection per task"
        )


def must_be_open(connection: _Async | _Sync) -> None:
    """Raise `TakenBack` if the service ended or failed the transaction of its block."""
    info = connection.info  # the end of a pipeline raises what failed in it
    if info.transaction_status is not TransactionStatus.INTRANS and not info.pipeline_status:
        raise TakenBack(_ENDED)


def _task() -> object:
    try:
        return asyncio.current_task() or get_ident()
    except RuntimeError:  # no event loop
        return get_ident()


_blocks: WeakKeyDictionary[Any, list[Block]] = WeakKeyDictionary()
_GONE = frozenset({"3B001", "25P01"})  # the savepoint, the transaction
_ENDED = "the block ended or failed the transaction of the key. To roll back, raise in the block"
