"""The fixtures that most tests of a database share, as attributes of one."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import RLock
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.delivery.service import Report
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.outbound.transport.engines import EngineName
from holdfast.sink.contract.roles import application_of
from holdfast.sink.rows.outcome import Written
from tests.support import command
from tests.support.dispatch import delivery, dispatching, invariants
from tests.support.dispatch.dispatching import Process
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.waiting import eventually

ENGINES = os.environ.get("HOLDFAST_TEST_ENGINES", "asyncio").split(",")
"""The engines that faults of lines and hosts are tried on: the default one, or those named.

Each engine meets these faults by itself in `outbound/test_transport*.py` of the integration tests.
"""

LEASE_SECONDS = 2.5
"""Short, so that a lease ends within a test."""

TIMEOUTS = {"connect_timeout_ms": 500, "total_timeout_ms": 500}
"""Of an endpoint whose attempts fit into such a lease."""

SHORT = ("--drain", "--lease-seconds", str(LEASE_SECONDS))


SESSIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = %s
"""


class World:
    """A fresh database, who writes to it and who receives: each is set up when it is first used."""

    def __init__(self, request: pytest.FixtureRequest | None, **parts: Any) -> None:
        self._request = request
        self._one_at_a_time = RLock()
        self.names: list[str] = []
        """The endpoints that `endpoint` added, which deliver to the receiver."""
        self.__dict__.update(parts)

    def __getattr__(self, fixture: str) -> Any:
        """Return a fixture, as a test finds it that takes it by its name; threads may ask too."""
        assert self._request is not None, f"this world was made without its {fixture}"
        with self._one_at_a_time:
            self.__dict__.setdefault(fixture, self._request.getfixturevalue(fixture))
        return self.__dict__[fixture]

    dsn: str
    db: psycopg.Connection
    decisions: Decisions
    receiver: WebhookReceiver
    driver: Callable[..., Driver]
    tmp_path: Path

    def write(self, *subjects: str, **other: Any) -> Written:
        """Write a batch with a decision for each subject."""
        return self.decisions.write(*subjects, **other)

    def closed(self, stream: str = "payouts") -> None:
        """Wait for the end of a closed sink's sessions: the server ends one after its client."""
        eventually(lambda: self.value(SESSIONS, application_of(stream)) == 0)

    def add_endpoint(self, url: str | None = None, **columns: Any) -> int:
        """Add an endpoint, of this world's receiver unless a URL is given."""
        return dispatching.add_endpoint(self.db, url or self.receiver.url, **columns)

    async def routed(self, store: PostgresStore, *subjects: str, **columns: Any) -> int:
        """Add an endpoint where nobody listens, and route a batch to it."""
        endpoint_id = self.add_endpoint("http://127.0.0.1:1/", **columns)
        self.write(*subjects)
        await store.route(16)
        return endpoint_id

    def drain(self, **changes: Any) -> Report:
        """Deliver, in this process, what can be delivered now."""
        return dispatching.drain(self.dsn, **changes)

    def dispatching(self, *options: str, **other: Any) -> AbstractContextManager[Process]:
        """Run `holdfast dispatch OPTIONS` in a process, with its log in `tmp_path`."""
        return dispatching.dispatching(self.dsn, self.tmp_path / "log", *options, **other)

    def holdfast(self, *arguments: str, **other: Any) -> command.Done:
        """Run `holdfast ARGUMENTS` on this database."""
        return command.holdfast(*arguments, dsn=self.dsn, **other)

    def lanes(self, endpoint_id: int | None = None) -> dict[str, delivery.LaneRow]:
        """Lanes by subject."""
        return delivery.lanes(self.db, endpoint_id)

    def attempts(self) -> list[delivery.AttemptRow]:
        """Attempts in the order in which they were recorded."""
        return delivery.attempts(self.db)

    def expire_leases(self) -> None:
        """Expire every lease."""
        delivery.expire_leases(self.db)

    def make_due(self) -> None:
        """Let every retry be due now."""
        delivery.make_due(self.db)

    def endpoint(self, url: str | None = None, **columns: Any) -> int:
        """Add an endpoint with short timeouts; `url` ends with its name, and is the receiver's."""
        row = {"name": "payouts", **TIMEOUTS, **columns}
        self.names.append(row["name"])
        own = f"{self.receiver.url}/{row['name']}"
        return self.add_endpoint(url or own, **row)

    def dispatch(
        self,
        name: str = "log",
        *options: str,
        dsn: str | None = None,
        engine: EngineName | None = None,
        failpoints: str = "",
        launcher: Sequence[str] = ("holdfast.dispatcher.cli.main",),
    ) -> AbstractContextManager[Process]:
        """Run `holdfast dispatch OPTIONS`, by default a drain with short leases."""
        return dispatching.dispatching(
            dsn or self.dsn,
            self.tmp_path / name,
            *(options or SHORT),
            engine=engine,
            failpoints=failpoints,
            launcher=launcher,
        )

    def check(self, receiver: WebhookReceiver | None = None) -> None:
        """Check every invariant, over what arrived at the receiver for each endpoint."""
        seen = (receiver or self.receiver).seen
        invariants.check(
            self.db,
            {name: [each for each in seen if each.target.endswith(name)] for name in self.names},
        )

    def heal(self, receiver: WebhookReceiver | None = None, **changes: Any) -> None:
        """Let every lease end and every retry be due, deliver what is left, and check all of it.

        What is left is delivered by a dispatcher in this process, with `changes` to its settings.
        """
        self.deliver(**changes)
        self.check(receiver)

    def deliver(self, **changes: Any) -> None:
        """Let every lease end and every retry be due, and deliver what is left."""
        self.expire_leases()
        self.make_due()
        self.drain(**changes)

    def unknown(self) -> int:
        """Count the attempts with an unknown outcome."""
        query = "SELECT count(*) FROM holdfast.attempt WHERE outcome = 'unknown'"
        (count,) = self.db.execute(query).fetchone() or (0,)
        return int(count)

    def value(self, query: str, *values: object) -> Any:
        """Return the one value that a query yields."""
        (value,) = self.db.execute(query.encode(), values).fetchone() or (None,)
        return value
