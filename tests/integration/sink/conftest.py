"""Drivers on a real database; their connections are closed after the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.driver import Driver

MakeDriver = Callable[..., Driver]


@pytest.fixture
def driver(dsn: str) -> Iterator[MakeDriver]:
    """Start drivers: `driver()` is a new checkpoint, `driver(query_id=...)` a restart from one."""
    started: list[Driver] = []

    def start(given_dsn: str | None = None, **settings: Any) -> Driver:
        started.append(Driver(given_dsn or dsn, **settings))
        return started[-1]

    yield start
    for each in started:
        each.sink.close()
