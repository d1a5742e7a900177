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

import httpx
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.sink.contract.failpoints import ENVIRONMENT
from holdfast.sink.contract.wire import INQUIRY_PATH
from tests.support.dispatch.sender import KEY_BYTES, Sent, secret_text, sign
from tests.support.processes import end

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
