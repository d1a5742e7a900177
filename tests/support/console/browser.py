"""The Chromium of the system, driven by Playwright; every window notes what no page may do.

Playwright's own event loop counts as running while a browser is open: what needs another loop runs
in a thread of its own (`aside`).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.support.console.admin_api import Api

PROGRAM = "HOLDFAST_TEST_CHROMIUM"
WIDTH, HEIGHT, NARROW = 1280, 900, 400
TIMEOUT_MS = 90_000
"""How long anything may take on a busy machine."""

ARGUMENTS = (
    "--disable-gpu",
    # No name leads anywhere, so that not even the browser itself can ask somebody.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)

STATUS_SAID = "Failed to load resource"
"""What Chromium's console says of every answer of 400 and above; statuses are tested themselves."""

Result = TypeVar("Result")


def aside(work: Callable[..., Result], *values: Any) -> Result:
    """Do something in a thread in which no event loop runs."""
    with ThreadPoolExecutor(1) as worker:
        return worker.submit(work, *values).result()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a headless Chromium; skips the test where none is installed."""
    program = os.environ.get(PROGRAM) or shutil.which("chromium")
    if program is None:
        pytest.skip(f"chromium is not installed, and {PROGRAM} names none")
    root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS, *root])
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """A browser's profile with one page, and the faults that were seen in it."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        size = {"width": WIDTH, "height": HEIGHT}
        self.context = browser.new_context(base_url=url, viewport=size, **options)
        self.context.set_default_timeout(TIMEOUT_MS)
        self.url = url
        self.faults: list[str] = []
        self.asked: list[str] = []
        """Every address that the browser asked for."""
        self.context.on("request", self._request)
        self.context.on("console", self._console)
        self.context.on("dialog", self._dialog)
        self.context.on("weberror", lambda error: self._fault(f"script: {error.error}"))
        self.page: Page = self.context.new_page()

    def log_in(self, secret: str) -> None:
        """Log in beside the page; the form itself has its own tests."""
        answer = self.context.request.post("/login", form={"token": secret}, max_redirects=0)
        assert answer.status == 303, answer.text()

    def go(self, address: str, status: int = 200) -> Page:
        """Load a page; fails for another status."""
        answer = self.page.goto(address)
        assert answer is not None
        assert answer.status == status, f"{address}: {answer.status}"
        return self.page

    def _fault(self, message: str) -> None:
        self.faults.append(f"{self.page.url}: {message}")

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)
        if not request.url.startswith(f"{self.url}/"):
            self._fault(f"asked {request.url}")

    def _console(self, message: ConsoleMessage) -> None:
        # A policy that was violated is an error on the console.
        if message.type in {"error", "warning"} and not message.text.startswith(STATUS_SAID):
            self._fault(f"console: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self._fault(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def window(browser: Browser, api: Api, role: str | None = None, **options: Any) -> Iterator[Window]:
    """Open a window at a server, logged in with the token of a role; fails where it saw faults."""
    made = Window(browser, api.url, **options)
    try:
        if role is not None:
            made.log_in(api.secrets[role])
        yield made
    finally:
        made.context.close()
    assert made.faults == []


def path_of(address: str) -> str:
    """Return the path of an address, without its host and its query."""
    return urlsplit(address).path
