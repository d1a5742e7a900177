"""Where a page of the runbook is followed: an outbox, its dispatcher, the payouts service."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from holdfast.deploy.local.ports import free_port
from holdfast.dispatcher.outbound.reference_rule import ALLOW_DIR
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import Process, dispatching
from tests.support.dispatch.entries import NOON, WINDOW
from tests.support.dispatch.payouts import READY
from tests.support.dispatch.sender import hold, secret_text
from tests.support.processes import end

STOP_SECONDS_MAX = 20

_TIMES = """
    SELECT c.relname, array_agg(a.attname::text)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'holdfast'::regnamespace
      AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND a.atttypid = 'timestamptz'::regtype AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attname <> 'occurred_at' AND c.relname <> 'dispatcher_instance'
    GROUP BY 1
"""

_SCHEDULE = ",".join(["1"] * 32)
"""Longer than the receiver takes to start on a busy machine."""

_LEFT = """
    SELECT (SELECT count(*) FROM holdfast.batch WHERE routed_at IS NULL)
         + (SELECT count(*) FROM holdfast.lane WHERE delivered_sequence < last_sequence)
"""


def decided(merchant: str, window: int, action: str, **changes: Any) -> dict[str, Any]:
    """One decision that the payouts service applies, at the end of the n-th window after noon."""
    end = NOON + window * WINDOW
    start, stop = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (end - WINDOW, end))
    return {
        "subject": merchant,
        "type": f"payout_hold.{action}",
        "key": ["payout-hold/v1", merchant, stop, action, "1"],
        "occurred_at": end,
        "data": hold(merchant, action, window_start=start, window_end=stop, **changes),
    }


def rows(*decisions: dict[str, Any]) -> pa.Table:
    """Decisions as a job hands them to the sink."""
    return pa.Table.from_pylist(list(decisions))


@dataclass
class World:
    """One outbox and one receiver; whatever is started on them is ended with the world."""

    dsn: str
    db: psycopg.Connection
    payouts_dsn: str
    folder: Path
    port: int = field(default_factory=free_port)
    secret_file: Path = field(init=False)
    _services: list[subprocess.Popen[str]] = field(default_factory=list)
    _dispatcher: Process | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.secret_file = self.folder / "secret"
        self.secret_file.write_text(secret_text())
        self.secret_file.chmod(0o600)

    @property
    def url(self) -> str:
        """Where decisions are sent."""
        return f"http://127.0.0.1:{self.port}/webhooks"

    def endpoint(self, *options: str) -> None:
        """Add the endpoint `payouts` by the command: with short retries, without a breaker."""
        done = holdfast(
            *("endpoint", "add", "payouts", "--url", self.url, "--allow-cidr", "127.0.0.0/8"),
            *("--secret-ref", f"file:{self.secret_file}"),
            *("--schedule", _SCHEDULE, "--breaker-threshold", "0", *options),
            dsn=self.dsn,
        )
        assert done.returncode == ExitCode.OK, done.stderr

    def dispatch(self) -> Process:
        """Run a dispatcher from now on; returns when it has begun."""
        log = self.folder / "dispatch.log"
        self._dispatcher = self._stack.enter_context(dispatching(self.dsn, log))
        self._dispatcher.says("dispatcher.started")
        return self._dispatcher

    def serve(self, *files: Path, failpoints: str = "") -> subprocess.Popen[str]:
        """Run the payouts service on the endpoint's port, with the secrets in `files`."""
        references = [f"file:{file}" for file in files or (self.secret_file,)]
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast.dispatcher.cli.main", "payouts", "serve"),
                *("--port", str(self.port)),
                *(word for each in references for word in ("--secret-ref", each)),
            ],
            env={**os.environ, "PAYOUTS_DSN": self.payouts_dsn, ENVIRONMENT: failpoints},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._services.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), f"exit code {process.poll()}: {line!r}"
        return process

    def stop_serving(self) -> None:
        """End what serves, in order."""
        while self._services:
            end(self._services.pop(), STOP_SECONDS_MAX)

    def age(self, by: timedelta) -> None:
        """Move back everything that was recorded, as if it had happened then; at most a day."""
        moved = sql.SQL("{0} = {0} - {1}")
        with self.db.transaction():
            for table, columns in self.db.execute(_TIMES).fetchall():
                changes = [moved.format(sql.Identifier(each), sql.Literal(by)) for each in columns]
                self.db.execute(
                    sql.SQL("UPDATE holdfast.{} SET {}").format(
                        sql.Identifier(table), sql.SQL(", ").join(changes)
                    )
                )

    def value(self, query: str) -> Any:
        """Return the one value that a query yields here."""
        (value,) = self.db.execute(query.encode()).fetchone() or (None,)
        return value

    def delivered(self) -> None:
        """Wait until nothing is left to deliver; fails as soon as the dispatcher has ended."""
        self.until(lambda: self.value(_LEFT) == 0)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, as long as the dispatcher lives."""
        assert self._dispatcher
        self._dispatcher.until(condition)

    def applied(self) -> list[tuple[Any, ...]]:
        """Return merchant, action and effect of what the payouts service did, in its order."""
        with psycopg.connect(self.payouts_dsn) as connection:
            return connection.execute(
                "SELECT merchant_id, action, effect FROM payouts.hold_history ORDER BY 1, sequence"
            ).fetchall()

    def close(self) -> None:
        """End everything."""
        self._stack.close()
        self.stop_serving()


@contextmanager
def world(dsn: str, payouts_dsn: str, folder: Path) -> Iterator[World]:
    """Yield a world with nothing in it."""
    with pytest.MonkeyPatch.context() as patch, psycopg.connect(dsn, autocommit=True) as db:
        patch.setenv(ALLOW_DIR, str(folder))
        the_world = World(dsn, db, payouts_dsn, folder)
        try:
            yield the_world
        finally:
            the_world.close()
