"""The cases: how each handles one delivery."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import psycopg

from holdfast.receiver import Delivery, Inbox, Secret, verify
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.sender import KEY_BYTES, Sent

SECRETS = (Secret(KEY_BYTES),)
FURTHER = [
    (b"host", b"payouts.example"),
    (b"user-agent", b"holdfast/1"),
    (b"accept-encoding", b"identity"),
    (b"content-length", b"400"),
]
"""What a request has besides, and a verifier must step over."""

BARE_TABLE = b"""
CREATE TABLE IF NOT EXISTS bare_key (
    key text PRIMARY KEY, body_sha256 bytea NOT NULL, subject text NOT NULL,
    sequence bigint NOT NULL, received_at timestamptz NOT NULL DEFAULT now())
"""
BARE_INSERT = b"INSERT INTO bare_key (key, body_sha256, subject, sequence) VALUES (%s, %s, %s, %s)"
HASH = bytes(32)
ACT_TABLE = b"CREATE TABLE IF NOT EXISTS act (subject text PRIMARY KEY, sequence bigint NOT NULL)"
ACT = (
    b"INSERT INTO act VALUES (%s, %s)"
    b" ON CONFLICT (subject) DO UPDATE SET sequence = excluded.sequence"
)
"""The service's own action, the same in every case."""

Run = Callable[[Sequence[Delivery]], float]
Case = Callable[[str], AbstractContextManager[Run]]


@dataclass(frozen=True, slots=True)
class Request:
    """One delivery as a server hands it over."""

    headers: list[tuple[bytes, bytes]]
    body: bytes


def requests(count: int, round_: int) -> list[Request]:
    """Return signed deliveries, each of another merchant."""
    sent = [Sent.of(f"m_{round_}_{number}", "block", 1) for number in range(count)]
    return [
        Request(
            [*FURTHER, *((k.encode(), v.encode()) for k, v in one.headers.items())], one.content
        )
        for one in sent
    ]


def verified(given: Sequence[Request]) -> list[Delivery]:
    """Verify all of them."""
    return [verify(request.headers, request.body, SECRETS) for request in given]


def verifications(given: Sequence[Request]) -> float:
    """Return the processor seconds that it takes to verify all of them."""
    began = time.process_time()
    for request in given:
        verify(request.headers, request.body, SECRETS)
    return time.process_time() - began


@contextmanager
def inbox(dsn: str) -> Iterator[Run]:
    """Yield what lets one connection take deliveries, a transaction each; it returns seconds."""
    kept = Inbox()
    with psycopg.connect(dsn, autocommit=True) as connection:

        def run(given: Sequence[Delivery]) -> float:
            began = time.perf_counter()
            for delivery in given:
                subject = delivery.body.text("merchant_id")
                with kept.transaction_sync(connection):
                    receipt = kept.receive_sync(connection, delivery, subject=subject)
                    if receipt.outcome is ReceiptOutcome.APPLIED:
                        connection.execute(ACT, (subject, delivery.body.sequence))
            return time.perf_counter() - began

        yield run


@contextmanager
def inbox_async(dsn: str) -> Iterator[Run]:
    """As `inbox`, on an asynchronous connection."""
    kept = Inbox()
    with _asynchronous(dsn) as (runner, connection):

        async def run(given: Sequence[Delivery]) -> float:
            began = time.perf_counter()
            for delivery in given:
                subject = delivery.body.text("merchant_id")
                async with kept.transaction(connection):
                    receipt = await kept.receive(connection, delivery, subject=subject)
                    if receipt.outcome is ReceiptOutcome.APPLIED:
                        await connection.execute(ACT, (subject, delivery.body.sequence))
            return time.perf_counter() - began

        yield lambda given: runner.run(run(given))


@contextmanager
def bare_insert(dsn: str) -> Iterator[Run]:
    """Insert a row of the same columns and act, in a transaction each."""
    with psycopg.connect(dsn, autocommit=True) as connection:

        def run(given: Sequence[Delivery]) -> float:
            began = time.perf_counter()
            for delivery in given:
                subject = delivery.body.text("merchant_id")
                with connection.transaction():
                    connection.execute(BARE_INSERT, _row(delivery))
                    connection.execute(ACT, (subject, delivery.body.sequence))
            return time.perf_counter() - began

        yield run


@contextmanager
def bare_insert_async(dsn: str) -> Iterator[Run]:
    """As `bare_insert`, on an asynchronous connection."""
    with _asynchronous(dsn) as (runner, connection):

        async def run(given: Sequence[Delivery]) -> float:
            began = time.perf_counter()
            for delivery in given:
                subject = delivery.body.text("merchant_id")
                async with connection.transaction():
                    await connection.execute(BARE_INSERT, _row(delivery))
                    await connection.execute(ACT, (subject, delivery.body.sequence))
            return time.perf_counter() - began

        yield lambda given: runner.run(run(given))


@contextmanager
def _asynchronous(dsn: str) -> Iterator[tuple[asyncio.Runner, psycopg.AsyncConnection]]:
    with asyncio.Runner() as runner:
        connection = runner.run(psycopg.AsyncConnection.connect(dsn, autocommit=True))
        try:
            yield runner, connection
        finally:
            runner.run(connection.close())


def _row(delivery: Delivery) -> tuple[str, bytes, object, int]:
    return delivery.key, HASH, delivery.body.data["merchant_id"], delivery.body.sequence


DATABASE_CASES: dict[str, Case] = {
    "inbox": inbox,
    "bare_insert": bare_insert,
    "inbox_async": inbox_async,
    "bare_insert_async": bare_insert_async,
}
RATIOS = {
    "vs_bare_insert": ("inbox", "bare_insert"),
    "vs_bare_insert_async": ("inbox_async", "bare_insert_async"),
}
LABELS = {
    "verify": "verify(), one secret; a second of processor time",
    "inbox": "Inbox.receive_sync and the action, a transaction each",
    "bare_insert": "INSERT of one row and the action, a transaction each",
    "inbox_async": "Inbox.receive and the action, a transaction each",
    "bare_insert_async": "INSERT of one row and the action, a transaction each",
}
