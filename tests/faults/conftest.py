"""What the faults of the dispatcher share."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.scene import Scene
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhooks.listening() as receiver:
        yield receiver


@pytest.fixture
def scene(
    dsn: str,
    db: psycopg.Connection,
    receiver: WebhookReceiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    monkeypatch.setenv(SECRET, secret_text())
    with Decisions(dsn) as decisions:
        yield Scene(dsn, db, decisions, receiver, tmp_path)
