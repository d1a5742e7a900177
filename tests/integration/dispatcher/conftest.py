"""What the dispatcher's tests share: a receiver, a stream, a secret."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.dispatcher.outbound.reference_rule import ALLOW_DIR
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhooks.listening() as receiver:
        yield receiver


@pytest.fixture
def decisions(dsn: str) -> Iterator[Decisions]:
    with Decisions(dsn) as decisions:
        yield decisions


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, secret_text())


@pytest.fixture
def secret_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's folder, in which references may name files."""
    monkeypatch.setenv(ALLOW_DIR, str(tmp_path))
    return tmp_path
