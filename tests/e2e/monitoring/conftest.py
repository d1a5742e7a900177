"""What the alerts are fired on."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.deploy.local.ports import free_port
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.scene import Scene
from tests.support.dispatch.sender import secret_text
from tests.support.job.decisions import Decisions
from tests.support.monitoring.prometheus import Watcher, watcher


@pytest.fixture
def scene(
    dsn: str, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    monkeypatch.setenv(SECRET, secret_text())
    with webhooks.listening() as receiver, Decisions(dsn) as decisions:
        yield Scene(dsn, db, decisions, receiver, tmp_path)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watcher]:
    with watcher(tmp_path) as start:
        yield start


@pytest.fixture
def address() -> str:
    """Where a dispatcher or a job serves its metrics."""
    return f"127.0.0.1:{free_port()}"
