"""The Chromium of the system, driven by Playwright; every window notes what no page may do.

Playwright's own event loop counts as running while a browser is open: what needs another loop runs
in a thread of its own (`aside`).
"""

import json
import os
import re
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, urljoin, urlsplit
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Route,
    expect,
    sync_playwright,
)
from psycopg.types.json import Jsonb

from holdfast.dispatcher.api.console import routes
from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.subjects.holding import Holding
from holdfast.sink import BatchInput, ReplayDiverged
from holdfast.sink.contract.key import Key
from tests.support.console import admin_api
from tests.support.console.admin_api import Api, serving
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import REFUSED, RELEASE, decision, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.servers.databases import copy_of

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


def held(page: Page, routes: list[Route]) -> list[Route]:
    """Let the browser go on for a moment; return the requests that a route has held until then."""
    page.wait_for_timeout(50)
    return routes


def refresh(page: Page, routes: list[Route]) -> list[Route]:
    """Refresh the live part; return the requests that a route has held until then.

    A refresh that was under way before the route may replace the part and drop this one.
    """
    page.evaluate("htmx.trigger('#live', 'holdfast:live')")
    return held(page, routes)


INSPECT = Path(__file__).with_name("browser_inspect.js").read_text()
BEYOND = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

ROUTES = [
    route
    for router in routes.ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and "GET" in route.methods
]
"""Every page of the console, in the order in which addresses are matched."""


@dataclass
class Visit:
    """One page as it was seen, and how far it reaches beyond the right edge, in pixels."""

    address: str
    route: str
    status: int
    seen: dict[str, Any] = field(repr=False)
    beyond: int
    beyond_narrow: int = 0
    """Of the first page of each kind, in a narrow window."""

    faint: dict[str, list[str]] = field(default_factory=dict)
    """Text that is hard to read, by theme; of the first page of each route."""


def route_of(address: str) -> str:
    """Return the pattern that an address matches; "" for one that is no page of the console."""
    path = urlsplit(address).path
    return next((each.path for each in ROUTES if each.path_regex.fullmatch(path)), "")


def walk(
    window: Window, begin: Iterable[str], *, closely: bool, pictures: Path | None = None
) -> list[Visit]:
    """Follow links from `begin` to a page of each kind, or `closely` to two.

    Of a kind are pages of one route whose addresses have the same parameters. A close look is also
    one in both themes and in a narrow window; `pictures` is the folder for pictures of the first
    page of each route.
    """
    return list(_visits(window, deque(begin), closely, pictures))


def _visits(
    window: Window, ahead: deque[str], closely: bool, pictures: Path | None
) -> Iterator[Visit]:
    known, kinds, drawn = set(ahead), Counter[tuple[str, ...]](), set[str]()
    while ahead:
        address = ahead.popleft()
        kind = _kind(address)
        kinds[kind] += 1
        if kinds[kind] > 1 + closely:
            continue
        visit = _look(window, address)
        new = visit.route not in drawn
        picture = pictures / _name(visit.route) if pictures and new else None
        if new and closely:
            _draw(window, visit, picture)
        if kinds[kind] == 1 and closely:
            _squeeze(window, visit, picture)
        drawn.add(visit.route)
        yield visit
        for link in visit.seen["links"]:
            url = urljoin(address, link).partition("#")[0]
            if url not in known and link.startswith("/"):
                known.add(url)
                ahead.append(url)


def _kind(address: str) -> tuple[str, ...]:
    names = sorted({name for name, _ in parse_qsl(urlsplit(address).query)})
    return (route_of(address), *names)


def _name(route: str) -> str:
    return "-".join(re.findall(r"[a-z]+", route)) or "overview"


def _look(window: Window, address: str) -> Visit:
    answer = window.page.goto(address)
    assert answer is not None
    seen, beyond = window.page.evaluate(INSPECT), window.page.evaluate(BEYOND)
    return Visit(address, route_of(address), answer.status, seen, beyond)


def _draw(window: Window, visit: Visit, picture: Path | None) -> None:
    for theme in THEMES:
        window.page.emulate_media(color_scheme=theme)
        visit.faint[theme] = window.page.evaluate(INSPECT)["faint"]
        _keep(window, picture, theme)
    window.page.emulate_media(color_scheme="light")


def _squeeze(window: Window, visit: Visit, picture: Path | None) -> None:
    window.page.set_viewport_size({"width": NARROW, "height": HEIGHT})
    visit.beyond_narrow = window.page.evaluate(BEYOND)
    _keep(window, picture, "narrow")
    window.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def _keep(window: Window, picture: Path | None, kind: str) -> None:
    if picture is not None:
        path = picture.with_name(f"{picture.name}.{kind}.jpg")
        window.page.screenshot(path=path, full_page=True, type="jpeg", quality=85)


MARKUP = """"'><img class=canary src=/canary onerror=alert(1)><script>alert(2)</script>{{7*7}} """
"""It leaves an attribute, draws an element, runs a script, and is an expression of templates."""

WITHHELD = "value-of-a-header"
"""No page shows it to anybody."""

NOBODY = "http://127.0.0.1:9/"
"""Where nothing listens."""

INSTANCE = """
    INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, heartbeat_at, draining)
    VALUES (gen_random_uuid(), %s, 3, %s, now(), false)
"""
CHECKPOINT = "UPDATE holdfast.stream SET checkpoint = %s WHERE name = 'foreign'"
OFFSETS = "UPDATE holdfast.batch SET source_offsets = %s WHERE stream = 'foreign'"
LOSE = """
    DELETE FROM holdfast.entry
    WHERE sequence = 2 AND subject_id = (SELECT id FROM holdfast.subject WHERE name = %s)
"""
BREAKER = """
    UPDATE holdfast.endpoint_pace
    SET breaker = 'open', breaker_until = now() + interval '1 day', breaker_reason = %s
    WHERE endpoint_id = %s
"""


def canary(place: str) -> str:
    """Return a text that would be markup, and names the place that it was put into."""
    return f"{MARKUP}canary-{place}"


SUBJECT, LOST = canary("subject"), canary("lost")
KEY = Key.of(decision(SUBJECT, 1)["key"])


def _behaviour(seen: Seen) -> Behaviour:
    if seen.subject == LOST:
        return answer()
    text = json.dumps({"error": canary("answer")}).encode()
    return answer(422, text, content_type="application/json")


def fill(dsn: str, folder: Path) -> None:
    """Write, deliver, refuse, diverge and plan: first what is harmless, then what is not."""
    admin_api.fill(dsn)
    with psycopg.connect(dsn, autocommit=True) as db, webhooks.listening() as receiver:
        receiver.script = _behaviour
        headers = Jsonb({"x-team": WITHHELD})
        add_endpoint(db, receiver.url, name="foreign", headers=headers)
        add_endpoint(db, receiver.url, name="refused", allow_cidrs=[], types=[RELEASE])
        down = add_endpoint(db, NOBODY, name="down", types=[RELEASE], schedule_seconds=[0])
        with Decisions(dsn, "foreign") as decisions:
            decisions.write("m_released", type_=RELEASE)
            decisions.write(SUBJECT, SUBJECT, LOST)
            _refused(dsn)
            drain(dsn)
            decisions.write(LOST, LOST)
        db.execute(LOSE, [LOST])
        drain(dsn)
        db.execute(INSTANCE, [canary("host"), canary("version")])
        db.execute(CHECKPOINT, [str(folder)])
        db.execute(OFFSETS, [f'v1\n{{"batchWatermarkMs":0}}\n"{canary("offsets")}"'])
        db.execute(BREAKER, [canary("breaker"), down])
    with acting_as(canary("actor")):
        _act(dsn)


def _refused(dsn: str) -> None:
    row = {"reason": "malformed", "detail": canary("detail"), "row": canary("row")}
    table = pa.Table.from_pylist([row], REFUSED)
    spark = Driver(
        dsn, stream="diverging", select=lambda rows: BatchInput(rows, table), query_id=uuid4()
    )
    spark.batch(0, decision(canary("then")), decision("same"))
    with pytest.raises(ReplayDiverged):
        spark.batch(0, decision(canary("now")), decision("same", minor=1))
    spark.sink.close()


def _act(dsn: str) -> None:
    reason = canary("reason")
    with Endpoints.connect(dsn) as store:
        store.set_endpoint_state("down", "paused", canary("paused"))
    with Holding.connect(dsn) as store:
        store.hold(LOST, "payouts", None, canary("held"))
    with Replays.connect(dsn) as store:
        cancelled = store.plan(ReplayFilter(stream="test"), reason=reason)
        store.cancel(cancelled["id"], reason)
        begun = store.plan(ReplayFilter(endpoint="payouts", subject="m_0"), reason=reason)
        store.apply(begun["id"])
        store.plan(ReplayFilter(subject=SUBJECT), reason=reason)


def plan_of_one(dsn: str) -> str:
    """Plan to send the canary's first entry again; returns the address that asks for the yes."""
    with Replays.connect(dsn) as store:
        row = store.plan(ReplayFilter(keys=(KEY.digest,)), reason="a test")
    return f"/entries/{KEY.text}/redeliver/{row['id']}"


@contextmanager
def world(server_dsn: str, template: str, folder: Path) -> Iterator[Api]:
    """Serve such an outbox."""
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv(SECRET, secret_text())
        dsn = stack.enter_context(copy_of(server_dsn, template))
        aside(fill, dsn, folder)
        name = psycopg.conninfo.make_conninfo(dsn, application_name="<img class=canary>program")
        stack.enter_context(psycopg.connect(name, autocommit=True))
        yield stack.enter_context(serving(dsn))
