"""An outbox in which nothing is yet, and a database that is away."""

from collections.abc import Iterator

import psycopg
import pytest
from playwright.sync_api import Browser, expect

from holdfast.dispatcher.api.console.frame.templating import SCREENS
from holdfast.dispatcher.operators.common import pool as operator_pool
from tests.support.console.admin_api import Api, serving
from tests.support.console.browser import Window, window
from tests.support.servers.databases import copy_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

SAID = {
    "/": "No batch yet",
    "/entries": "No entry yet",
    "/subjects": "No subject yet",
    "/batches": "No stream yet",
    "/quarantine": "The quarantine is empty",
    "/suppressed": "Nothing is suppressed",
    "/dead": "No dead letter",
    "/replays": "No replay yet",
    "/endpoints": "No endpoint",
    "/dispatchers": "No dispatcher",
    "/database": "Oldest snapshot",
    "/audit": "token.add",
}
"""The database and the audit trail are never empty: a token had to be made."""

AWAY = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"


@pytest.fixture(scope="module")
def empty(server_dsn: str, template_database: str) -> Iterator[Api]:
    """A server on an outbox to which nothing was ever written."""
    with pytest.MonkeyPatch.context() as patched, copy_of(server_dsn, template_database) as dsn:
        patched.setattr(operator_pool, "WAIT_SECONDS", 0.5)
        with serving(dsn) as api:
            yield api


@pytest.fixture(scope="module")
def opened(browser: Browser, empty: Api) -> Iterator[Window]:
    """An administrator's window."""
    with window(browser, empty, "admin") as opened:
        yield opened


@pytest.mark.parametrize("path", [screen.path for screen in SCREENS])
def test_empty_screen_shows_that_nothing_exists_yet(opened: Window, path: str) -> None:
    expect(opened.go(path).locator("main")).to_contain_text(SAID[path])


def test_unavailable_database_shows_a_page_that_recovers(
    opened: Window, empty: Api, server_dsn: str
) -> None:
    (row,) = empty.rows("SELECT current_database() AS name")
    shut = f'ALTER DATABASE "{row["name"]}" ALLOW_CONNECTIONS '
    page = opened.go("/endpoints")
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(f"{shut} false".encode())
        try:
            server.execute(AWAY, [row["name"]])
            opened.go("/endpoints", status=503)
            expect(page.get_by_role("alert")).to_contain_text("database")
        finally:
            server.execute(f"{shut} true".encode())

    def is_back() -> bool:
        if page.get_by_role("link", name="Try again").is_visible():
            page.get_by_role("link", name="Try again").click()
        return page.get_by_text(SAID["/endpoints"]).is_visible()

    eventually(is_back)
