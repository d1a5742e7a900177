"""The fixtures that most tests of a database share, as attributes of one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import RLock
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.delivery.service import Report
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.sink.transaction.ledger import Written
from tests.support import command
from tests.support.dispatch import delivery, dispatching
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver


class World:
    """A fresh database, who writes to it and who receives: each is set up when it is first used."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._one_at_a_time = RLock()

    def __getattr__(self, fixture: str) -> Any:
        """Return a fixture, as a test finds it that takes it by its name; threads may ask too."""
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

    def dispatching(
        self, *options: str, **other: Any
    ) -> AbstractContextManager[dispatching.Process]:
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
