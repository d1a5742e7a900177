"""A receiver on a real socket that holds each request until a step decides about it.

What it does then is the receiver kit's: verify the signature, keep the key in the inbox, act,
commit, answer with a receipt. So a request may arrive and be applied after its sender is gone.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from holdfast.receiver import Delivery, Inbox, Receipt, Secret, handle
from holdfast.receiver.ddl import ddl
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.asynchronous import end_every_task, refuse
from tests.support.dispatch.sender import KEY_BYTES
from tests.support.dispatch.webhooks import response

SCHEMA = "receiver"
"""Of the inbox, in the database of the outbox: an image of the outbox leaves it out."""


@dataclass
class Request:
    """A request that was read from its connection, and is not answered yet."""

    target: str
    headers: Mapping[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    decided: asyncio.Future[bytes | None]
    """The answer's bytes; None: the connection ends without an answer."""
    answer: bytes = field(default=response(500), repr=False)
    """What `reply` sends: the inbox's answer once the request was received, before that a 500."""


class Receiver:
    """Listens on a port of this machine, and has an inbox of its own."""

    def __init__(self, dsn: str) -> None:
        """`dsn` is the database of its inbox."""
        self._db = psycopg.connect(dsn, autocommit=True)
        self._db.execute(ddl(SCHEMA).encode())
        self._inbox = Inbox(SCHEMA)
        self._secrets = [Secret(KEY_BYTES)]
        self._server: asyncio.Server | None = None
        self._arrived: asyncio.Queue[Request] = asyncio.Queue()
        self._undecided: list[Request] = []
        self.port = 0
        self.actions: list[str] = []
        """The keys on which it acted, in order."""
        self.duplicates: Counter[str] = Counter()
        """By key: requests that came after the first."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop, with every connection."""
        if self._server is not None:
            await refuse(self._server)
            await end_every_task()
        self._db.close()

    async def drop(self) -> None:
        """Forget requests that nobody decided about."""
        for each in self._undecided:
            if not each.decided.done():
                each.decided.set_result(None)
        self._undecided.clear()
        while not self._arrived.empty():
            self._arrived.get_nowait()

    def forget(self) -> None:
        """Forget every key, as a receiver that never got a request."""
        tables = ", ".join(f"{SCHEMA}.{name}" for name in ("inbox", "inbox_subject"))
        self._db.execute(f"TRUNCATE {tables}".encode())
        self.actions.clear()
        self.duplicates.clear()

    def inbox(self) -> list[tuple[str, str, int, str]]:
        """Return key, subject, sequence and first outcome of each known key."""
        query = sql.SQL("SELECT key, subject, sequence, outcome FROM {}.inbox ORDER BY key")
        return self._db.execute(query.format(sql.Identifier(SCHEMA))).fetchall()

    def fences(self) -> dict[str, int]:
        """Return the newest sequence of each subject."""
        query = sql.SQL("SELECT subject, last_sequence FROM {}.inbox_subject")
        return dict(self._db.execute(query.format(sql.Identifier(SCHEMA))).fetchall())

    async def arrival(self) -> Request:
        """Wait for the next request."""
        return await self._arrived.get()

    def receive(self, request: Request) -> None:
        """Do what a service does with a request: verify, receive, act, commit."""
        reply = handle(request.headers, request.body, self._secrets, self._deal)
        headers = {name.replace("-", "_"): value for name, value in reply.headers.items()}
        request.answer = response(reply.status, reply.body, **headers)

    def _deal(self, delivery: Delivery) -> Receipt:
        subject = delivery.body.text("merchant_id")
        with self._inbox.transaction_sync(self._db):
            receipt = self._inbox.receive_sync(self._db, delivery, subject=subject)
            if receipt.outcome is ReceiptOutcome.APPLIED:
                self.actions.append(delivery.key)
        self.duplicates[delivery.key] += receipt.replayed
        return receipt

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                request = await _read(reader, writer)
                self._undecided.append(request)
                self._arrived.put_nowait(request)
                decided = await request.decided
                if decided is None:
                    break
                writer.write(decided)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = head.split("\r\n")[:-2]
    pairs: Sequence[Any] = [line.partition(":") for line in rest]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers["content-length"]))
    decided = asyncio.get_running_loop().create_future()
    return Request(first.split(" ")[1], headers, body, writer, decided)
