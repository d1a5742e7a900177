"""The stage of a fault: an outbox, a receiver, dispatchers, and what must hold in the end."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from holdfast.dispatcher.outbound.transport.engines import EngineName
from tests.support.dispatch.delivery import expire_leases, make_due
from tests.support.dispatch.dispatching import Process, add_endpoint, dispatching, drain
from tests.support.dispatch.invariants import check
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver
from tests.support.job.decisions import Decisions

ENGINES = os.environ.get("HOLDFAST_TEST_ENGINES", "asyncio").split(",")
"""The engines that faults of lines and hosts are tried on: the default one, or those named.

Each engine meets these faults by itself in `tests/integration/dispatcher/test_transport*.py`.
"""

LEASE_SECONDS = 2.5
"""Short, so that a lease ends within a test."""

TIMEOUTS = {"connect_timeout_ms": 500, "total_timeout_ms": 500}
"""Of an endpoint whose attempts fit into such a lease."""

SHORT = ("--drain", "--lease-seconds", str(LEASE_SECONDS))


@dataclass
class Scene:
    """One database, one receiver, and every dispatcher that a test starts on them."""

    dsn: str
    db: psycopg.Connection
    decisions: Decisions
    receiver: WebhookReceiver
    folder: Path
    names: list[str] = field(default_factory=list)
    """The endpoints that deliver to the receiver."""

    def endpoint(self, url: str | None = None, **columns: Any) -> int:
        """Add an endpoint with short timeouts; `url` ends with its name, and is the receiver's."""
        row = {"name": "payouts", **TIMEOUTS, **columns}
        self.names.append(row["name"])
        return add_endpoint(self.db, url or f"{self.receiver.url}/{row['name']}", **row)

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
        return dispatching(
            dsn or self.dsn,
            self.folder / name,
            *(options or SHORT),
            engine=engine,
            failpoints=failpoints,
            launcher=launcher,
        )

    def check(self, receiver: WebhookReceiver | None = None) -> None:
        """Check every invariant, over what arrived at the receiver for each endpoint."""
        seen = (receiver or self.receiver).seen
        check(
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
        expire_leases(self.db)
        make_due(self.db)
        drain(self.dsn, **changes)

    def unknown(self) -> int:
        """Count the attempts with an unknown outcome."""
        query = "SELECT count(*) FROM holdfast.attempt WHERE outcome = 'unknown'"
        (count,) = self.db.execute(query).fetchone() or (0,)
        return int(count)

    def value(self, query: str, *values: object) -> Any:
        """Return the one value that a query yields."""
        (value,) = self.db.execute(query.encode(), values).fetchone() or (None,)
        return value


class FirstOf:
    """Behaves in one way when it sees a key first, if `when` says so; else in the other."""

    def __init__(self, when: Callable[[Seen], bool], first: Behaviour, then: Behaviour) -> None:
        self._when = when
        self._first = first
        self._then = then
        self._known: set[tuple[str, str]] = set()

    def __call__(self, seen: Seen) -> Behaviour:
        met = seen.target, seen.header("webhook-id")
        known = met in self._known
        self._known.add(met)
        return self._first if not known and self._when(seen) else self._then
