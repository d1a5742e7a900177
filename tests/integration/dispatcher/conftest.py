"""What the dispatcher's tests share: a receiver, a stream, a secret."""

from collections.abc import Iterator

import pytest

from tests.support import webhooks
from tests.support.decisions import Decisions
from tests.support.dispatching import SECRET
from tests.support.sender import secret_text
from tests.support.webhooks import WebhookReceiver


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
