"""`make bench-receiver`: verifications per core, and the inbox beside bare single-row inserts.

A delivery that was lost or counted twice has no figure, and ends it with 1.
"""

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import psycopg

from holdfast.receiver import Delivery, Inbox, Secret, verify
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.benchmarks.common.runner import Bench, Run, main
from tests.support.dispatch.sender import KEY_BYTES, Sent

SECRETS = (Secret(KEY_BYTES),)
FURTHER = [
    (b"host", b"payouts.example"),
    (b"user-agent", b"holdfast/1"),
    (b"accept-encoding", b"identity"),
    (b"content-length", b"400"),
]
"""What a request has besides, and a verifier must step over."""

TABLES = b"""
CREATE TABLE bare_key (
    key text PRIMARY KEY, body_sha256 bytea NOT NULL, subject text NOT NULL,
    sequence bigint NOT NULL, received_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE act (subject text PRIMARY KEY, sequence bigint NOT NULL)
"""
BARE_INSERT = b"INSERT INTO bare_key (key, body_sha256, subject, sequence) VALUES (%s, %s, %s, %s)"
ACT = (
    b"INSERT INTO act VALUES (%s, %s)"
    b" ON CONFLICT (subject) DO UPDATE SET sequence = excluded.sequence"
)
"""The service's own action, the same in every case."""

COUNTS = """
SELECT (SELECT count(*) FROM payouts.inbox WHERE outcome = 'applied'),
    (SELECT count(*) FROM payouts.inbox_subject), (SELECT count(*) FROM bare_key),
    (SELECT count(*) FROM act)
"""
LABELS = {
    "inbox": "Inbox.receive_sync and the action, a transaction each",
    "bare_insert": "INSERT of one row and the action, a transaction each",
    "inbox_async": "Inbox.receive and the action, a transaction each",
    "bare_insert_async": "INSERT of one row and the action, a transaction each",
}
WARM = 2
"""Turns that do not count."""

Take = Callable[[Sequence[Delivery]], float]
Request = tuple[list[tuple[bytes, bytes]], bytes]


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    rounds: int = 100
    piece: int = 200
    """Deliveries before a case changes."""
    quick: ClassVar = {"rounds": 3, "piece": 50}


def verifications(bench: Bench[Sizes]) -> None:
    """Strict verifications, from header pairs and bytes to a delivery, a second of processor."""
    numbers = itertools.count()

    def run() -> Run:
        signed = requests(bench.size.piece, f"v{next(numbers)}")
        began = time.process_time()
        for headers, body in signed:
            verify(headers, body, SECRETS)
        return {"verifications/s": bench.size.piece / (time.process_time() - began)}

    title = "verify(), a second of processor time"
    bench.compare(title, {"verify": run}, bench.size.rounds, warm=1, by="verifications/s")


def inbox(bench: Bench[Sizes]) -> None:
    """Deliveries of as many merchants on one connection of each case, on one server."""
    size, numbers = bench.size, itertools.count()
    with bench.server.empty() as dsn, ExitStack() as stack:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(Inbox().ddl)
            connection.execute(TABLES)
        takes = {name: stack.enter_context(WAYS[name](dsn)) for name in bench.chosen(WAYS)}

        def run(name: str) -> Run:
            tag = f"{name}_{next(numbers)}"
            deliveries = [verify(*each, SECRETS) for each in requests(size.piece, tag)]
            gc.freeze()  # no service has thousands in hand for the collector to go through
            return {"deliveries/s": size.piece / takes[name](deliveries)}

        bench.server.checkpoint()
        pairs = {"vs_bare_insert": ("inbox", "bare_insert")}
        pairs["vs_bare_insert_async"] = ("inbox_async", "bare_insert_async")
        bench.compare(
            "Deliveries a second on one connection",
            {name: partial(run, name) for name in takes},
            size.rounds,
            warm=WARM,
            by="deliveries/s",
            ratios=pairs,
            labels=LABELS,
        )
        each = size.piece * (size.rounds + WARM)
        kept, bare = (each * sum(n.startswith(w) for n in takes) for w in ("inbox", "bare"))
        with psycopg.connect(dsn) as connection:
            counts = connection.execute(COUNTS).fetchone()
    if counts != (kept, kept, bare, kept + bare):
        raise RuntimeError(f"keys, fences, bare rows and actions are {counts}: {kept}, {bare}")


def requests(count: int, tag: str) -> list[Request]:
    """Return signed deliveries, each of another merchant, as a server hands them over."""
    sent = [Sent.of(f"m_{tag}_{number}", "block", 1) for number in range(count)]
    return [
        ([*FURTHER, *((k.encode(), v.encode()) for k, v in one.headers.items())], one.content)
        for one in sent
    ]


KIT = Inbox()


def _inbox(connection: psycopg.Connection, delivery: Delivery, subject: str) -> None:
    with KIT.transaction_sync(connection):
        receipt = KIT.receive_sync(connection, delivery, subject=subject)
        if receipt.outcome is ReceiptOutcome.APPLIED:
            connection.execute(ACT, (subject, delivery.body.sequence))


def _bare(connection: psycopg.Connection, delivery: Delivery, subject: str) -> None:
    with connection.transaction():
        row = (delivery.key, bytes(32), subject, delivery.body.sequence)
        connection.execute(BARE_INSERT, row)
        connection.execute(ACT, (subject, delivery.body.sequence))


async def _inbox_async(
    connection: psycopg.AsyncConnection, delivery: Delivery, subject: str
) -> None:
    async with KIT.transaction(connection):
        receipt = await KIT.receive(connection, delivery, subject=subject)
        if receipt.outcome is ReceiptOutcome.APPLIED:
            await connection.execute(ACT, (subject, delivery.body.sequence))


async def _bare_async(
    connection: psycopg.AsyncConnection, delivery: Delivery, subject: str
) -> None:
    async with connection.transaction():
        row = (delivery.key, bytes(32), subject, delivery.body.sequence)
        await connection.execute(BARE_INSERT, row)
        await connection.execute(ACT, (subject, delivery.body.sequence))


@contextmanager
def _sync(one: Any, dsn: str) -> Iterator[Take]:
    """Yield what lets one connection take deliveries; it returns the seconds."""
    with psycopg.connect(dsn, autocommit=True) as connection:

        def take(deliveries: Sequence[Delivery]) -> float:
            began = time.perf_counter()
            for delivery in deliveries:
                one(connection, delivery, delivery.body.text("merchant_id"))
            return time.perf_counter() - began

        yield take


@contextmanager
def _async(one: Any, dsn: str) -> Iterator[Take]:
    """As `_sync`, with an asynchronous connection."""
    with asyncio.Runner() as runner:
        connection = runner.run(psycopg.AsyncConnection.connect(dsn, autocommit=True))

        async def take(deliveries: Sequence[Delivery]) -> float:
            began = time.perf_counter()
            for delivery in deliveries:
                await one(connection, delivery, delivery.body.text("merchant_id"))
            return time.perf_counter() - began

        try:
            yield lambda deliveries: runner.run(take(deliveries))
        finally:
            runner.run(connection.close())


WAYS: dict[str, Callable[[str], AbstractContextManager[Take]]] = {
    "inbox": partial(_sync, _inbox),
    "bare_insert": partial(_sync, _bare),
    "inbox_async": partial(_async, _inbox_async),
    "bare_insert_async": partial(_async, _bare_async),
}

if __name__ == "__main__":
    main("receiver", Sizes, {"verify": verifications, "inbox": inbox}, about=__doc__ or "")
