"""One browser and one seeded server for all tests that only look."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.console.admin_api import Api
from tests.support.console.browser import chromium, world

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests last: an open browser's event loop would be in the way of others."""
    items.sort(key=lambda item: HERE in item.path.parents)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser; each test opens windows of its own."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def looked_at(
    server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """A server on an outbox with something of everything, and markup in every text."""
    with world(server_dsn, template_database, tmp_path_factory.mktemp("checkpoint")) as api:
        yield api
