"""The payouts service as a process, started by the real command and always ended by its pid."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.sink import OutboxSink
from holdfast.sink.contract.failpoints import ENVIRONMENT
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.wire import INQUIRY_PATH
from holdfast.sink.session import Identity
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.sender import BLOCK, KEY_BYTES, NOON, Sent, hold, secret_text, sign
from tests.support.processes import end
from tests.support.servers.databases import copy_of

READY = "payouts service ready on "
STOP_SECONDS_MAX = 20


def inquiry_headers(key: str, secret: bytes = KEY_BYTES) -> dict[str, str]:
    """The headers of a question about `key`: signed now, over an empty body."""
    now = int(time.time())
    return {
        "webhook-id": key,
        "webhook-timestamp": str(now),
        "webhook-signature": sign(key, now, b"", secret),
    }


@dataclass(frozen=True)
class Payouts:
    """A running service: where it listens, its process, its database."""

    url: str
    process: subprocess.Popen[str]
    dsn: str

    def send(self, sent: Sent) -> httpx.Response:
        return httpx.post(
            f"{self.url}/webhooks", content=sent.content, headers=sent.headers, timeout=30
        )

    def ask(self, key: str, secret: bytes = KEY_BYTES) -> httpx.Response:
        return httpx.get(
            f"{self.url}{INQUIRY_PATH}{key}", headers=inquiry_headers(key, secret), timeout=30
        )

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the service's own tables."""
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query, values or None).fetchall()

    def wait(self) -> int:
        """Wait for the process to end and return its exit code."""
        return self.process.wait(STOP_SECONDS_MAX)


@contextmanager
def empty_database(server_dsn: str) -> Iterator[str]:
    """Make an empty database, for as long as the block runs; several tests may share it."""
    name = sql.Identifier(f"holdfast_test_{secrets.token_hex(6)}")
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(name))
        try:
            yield make_conninfo(server_dsn, dbname=name.as_string().strip('"'))
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@contextmanager
def payouts(dsn: str, *options: str, failpoints: str = "") -> Iterator[Payouts]:
    """Run `holdfast payouts serve` on a free port until the block ends."""
    command = ["payouts", "serve", "--port", "0", "--secret-ref", "env:TEST_SECRET", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.dispatcher.cli.main", *command],
        env=os.environ
        | {"PAYOUTS_DSN": dsn, "TEST_SECRET": secret_text(), ENVIRONMENT: failpoints},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), f"exit code {process.poll()}: {line!r}"
        yield Payouts(line.removeprefix(READY).split()[0], process, dsn)
    finally:
        end(process, STOP_SECONDS_MAX)


DELIVERED = ("m_1", "m_2", "m_3")
UNANSWERED = "m_4"
SUBJECTS = (*DELIVERED, UNANSWERED)


@dataclass(frozen=True)
class Sides:
    """The two databases, and a connection to each for bending what is in it."""

    dsn: str
    receiver_dsn: str
    db: psycopg.Connection
    receiver: psycopg.Connection

    def at_receiver(self, query: str, subject: str = "m_2") -> None:
        """Change the inbox's row of a subject."""
        done = self.receiver.execute(query.encode(), [key_text(subject)])
        assert done.rowcount == 1


def key_of_subject(subject: str) -> list[str]:
    return ["receipts/v1", subject]


def key_text(subject: str) -> str:
    return Key.of(key_of_subject(subject)).text


def decisions(*subjects: str) -> pa.Table:
    """Decisions that the payouts service applies."""
    rows: list[dict[str, Any]] = [
        {
            "subject": each,
            "type": BLOCK,
            "key": key_of_subject(each),
            "occurred_at": NOON,
            "data": hold(each, "block"),
        }
        for each in subjects
    ]
    return pa.Table.from_pylist(rows)


def deliver_all(dsn: str, receiver_dsn: str) -> None:
    """Write and deliver the decisions, one after another, to a service that dies in the end."""
    sink = OutboxSink(dsn, stream="payouts")
    try:
        sink.apply(decisions(*SUBJECTS), Identity(UUID(int=1), uuid4(), 0))
    finally:
        sink.close()
    point = f"R4=kill@{len(SUBJECTS)}"
    with (
        payouts(receiver_dsn, failpoints=point) as service,
        psycopg.connect(dsn, autocommit=True) as db,
    ):
        url = f"{service.url}/webhooks"
        add_endpoint(db, url, schedule_seconds=[3600], concurrency=1, total_timeout_ms=20_000)
        drain(dsn)
        service.wait()


@contextmanager
def copies(server_dsn: str, dsn: str, receiver_dsn: str) -> Iterator[Sides]:
    """Yield both databases as copies, which a test may bend."""
    names = [str(conninfo_to_dict(each)["dbname"]) for each in (dsn, receiver_dsn)]
    with (
        copy_of(server_dsn, names[0]) as ours,
        copy_of(server_dsn, names[1]) as theirs,
        psycopg.connect(ours, autocommit=True) as db,
        psycopg.connect(theirs, autocommit=True) as receiver,
    ):
        yield Sides(ours, theirs, db, receiver)
