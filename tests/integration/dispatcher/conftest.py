"""What the dispatcher's tests share: a receiver, a stream, a secret."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.outbound.reference_rule import ALLOW_DIR
from tests.support.dispatch.delivery import opened
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import secret_text


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, secret_text())


@pytest.fixture
def secret_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's folder, in which references may name files."""
    monkeypatch.setenv(ALLOW_DIR, str(tmp_path))
    return tmp_path


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    """An open store, in the loop of the test."""
    async with opened(dsn) as store:
        yield store
