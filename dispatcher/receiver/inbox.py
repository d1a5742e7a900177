"""The inbox: one delivery, one business action, in the service's own transaction.

    async with connection.transaction():
        async with inbox.receive(connection, delivery, subject=merchant) as receipt:
            if receipt.outcome is ReceiptOutcome.APPLIED:
                ...  # the action; it commits together with the key, or neither does

Theory of operation. The primary key of `inbox` makes an action happen once, and the sequence in
`inbox_subject` keeps a late delivery from undoing a newer one; both hold without any lock. The
advisory locks taken first only keep a duplicate from *waiting* for the transaction that applies the
same key or subject: it is told `in_progress` at once instead of holding a connection. They are
tried, never waited for, so no deadlock comes from here. The isolation level is READ COMMITTED;
under a stricter one a race may end as a serialization failure, never as a second action.
"""

import hashlib
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from dispatcher.receiver.receipt import Receipt
from dispatcher.receiver.verify import Delivery
from sink.contract.failpoints import failpoint
from sink.contract.wire import ReceiptOutcome

SCHEMA = "payouts"

_Row = dict[str, Any]
_Step = tuple[str, Mapping[str, Any]]
_Steps = Generator[_Step, _Row | None, Receipt]

_STATEMENTS = ("try_lock", "find", "record", "keep_result")


class Inbox:
    """The inbox tables of one schema. Holds no connection and no state; share it freely."""

    def __init__(self, schema: str = SCHEMA) -> None:
        self._schema = schema
        self._statements = {name: _compose(schema, f"sql/{name}.sql") for name in _STATEMENTS}

    @property
    def ddl(self) -> sql.Composed:
        """The statements that create the schema and its tables where they are missing."""
        return _compose(self._schema, "schema.sql")

    @asynccontextmanager
    async def receive(
        self, connection: psycopg.AsyncConnection[Any], delivery: Delivery, *, subject: str
    ) -> AsyncIterator[Receipt]:
        """Claim the delivery's key; the block applies it when the outcome is `applied`.

        Runs in the open transaction of `connection` as a savepoint, or in one of its own. Raising
        inside the block takes the key back as well. Raises `psycopg.Error` as the driver does.
        """
        async with (
            connection.transaction(),
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            steps = self._claim(delivery, subject)
            row: _Row | None = None
            while True:
                try:
                    name, parameters = steps.send(row)
                except StopIteration as done:
                    receipt: Receipt = done.value
                    break
                await cursor.execute(self._statements[name], parameters)
                row = await cursor.fetchone()
            yield receipt
            if _has_new_result(receipt):
                await cursor.execute(self._statements["keep_result"], _result(receipt))
            _passed_apply(receipt)

    @contextmanager
    def receive_sync(
        self, connection: psycopg.Connection[Any], delivery: Delivery, *, subject: str
    ) -> Iterator[Receipt]:
        """Do as `receive` does, on a blocking connection."""
        with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
            steps = self._claim(delivery, subject)
            row: _Row | None = None
            while True:
                try:
                    name, parameters = steps.send(row)
                except StopIteration as done:
                    receipt: Receipt = done.value
                    break
                cursor.execute(self._statements[name], parameters)
                row = cursor.fetchone()
            yield receipt
            if _has_new_result(receipt):
                cursor.execute(self._statements["keep_result"], _result(receipt))
            _passed_apply(receipt)

    def _claim(self, delivery: Delivery, subject: str) -> _Steps:
        """Decide what becomes of the delivery: yields statements, is sent their first rows."""
        key = delivery.key
        body_sha256 = hashlib.sha256(delivery.raw).digest()
        about = {"schema": self._schema, "key": key, "subject": subject}
        lock = yield "try_lock", about
        if lock is None or not lock["locked"]:
            return Receipt(key, ReceiptOutcome.IN_PROGRESS)
        known = yield "find", about
        if known is not None:
            return _of_known(key, known, body_sha256)
        sequence = delivery.body.sequence
        new = yield "record", {**about, "body_sha256": body_sha256, "sequence": sequence}
        if new is None:
            raise AssertionError("INSERT ... RETURNING gave no row")
        failpoint("R2")
        return Receipt(key, ReceiptOutcome(new["outcome"]), new["received_at"])


def _of_known(key: str, known: _Row, body_sha256: bytes) -> Receipt:
    if known["body_sha256"] != body_sha256:
        return Receipt(key, ReceiptOutcome.CONFLICT)
    first = ReceiptOutcome(known["outcome"])
    # What was stale the first time was never applied: its receipt must not read as if it were.
    outcome = ReceiptOutcome.STALE if first is ReceiptOutcome.STALE else ReceiptOutcome.DUPLICATE
    return Receipt(key, outcome, known["received_at"], replayed=True, result=known["result"])


def _has_new_result(receipt: Receipt) -> bool:
    return receipt.outcome is ReceiptOutcome.APPLIED and receipt.result is not None


def _result(receipt: Receipt) -> dict[str, Any]:
    return {"key": receipt.key, "result": Jsonb(receipt.result)}


def _passed_apply(receipt: Receipt) -> None:
    if receipt.outcome is ReceiptOutcome.APPLIED:
        failpoint("R3")


def _compose(schema: str, path: str) -> sql.Composed:
    text = files("dispatcher.receiver").joinpath(path).read_text(encoding="utf-8")
    return sql.SQL(text).format(schema=sql.Identifier(schema))
