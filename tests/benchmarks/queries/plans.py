"""Every request once in this process, with EXPLAIN before each statement, and what none asks for.

So statements with a full scan of a large table are found. The server is in a thread, commands are
functions.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import httpx
import psycopg
from fastapi.routing import APIRoute
from psycopg import ClientCursor

from holdfast.dispatcher.api.app import application
from holdfast.dispatcher.api.console import routes
from holdfast.dispatcher.api.console.frame import login
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import AccessRole
from tests.benchmarks.queries.requests import LONG, Known, Query, known, lists, pages, reads
from tests.support.command import holdfast
from tests.support.console.admin_api import serving

ROLE = AccessRole.ADMIN
START = re.compile(r"listening on (http://\S+)")
SECONDS = 120.0


@dataclass(frozen=True)
class Served:
    """The console for a person, the API for a program."""

    browser: httpx.Client
    program: httpx.Client
    pid: int | None = None
    """Of a server that was started for it."""

    def query(self, query: Query) -> int:
        """Ask for a page or a read; returns its bytes. Raises RuntimeError for a wrong status."""
        client = self.browser if query.kind == "console" else self.program
        answer = client.get(query.ask[0])
        if answer.status_code not in query.ends:
            raise RuntimeError(f"{query.ask[0]} answered {answer.status_code}: {answer.text[:300]}")
        return len(answer.content)


@contextmanager
def served(dsn: str) -> Iterator[Served]:
    """Serve a database until the end; the token that is made for it is revoked then."""
    name = f"queries-{os.getpid()}"
    token = _token(dsn, name)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.dispatcher.cli.main", "api", "serve", "--port", "0"],
        env={**os.environ, "HOLDFAST_DSN": dsn},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with (
            httpx.Client(base_url=_address(process)) as browser,
            come_in(browser, token) as came_in,
        ):
            yield replace(came_in, pid=process.pid)
    finally:
        process.terminate()
        process.wait()
        holdfast("token", "revoke", name, "--reason", "benchmark", dsn=dsn)


@contextmanager
def come_in(browser: httpx.Client, token: str) -> Iterator[Served]:
    """Log in at the console with a token, and let a program use it too."""
    browser.timeout = httpx.Timeout(SECONDS)
    answer = browser.post(
        "/login", data={"token": token, "next": "/"}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    if answer.status_code != httpx.codes.SEE_OTHER:
        raise RuntimeError(f"the login was refused: {answer.status_code}")
    with httpx.Client(
        base_url=browser.base_url, timeout=SECONDS, headers={"Authorization": f"Bearer {token}"}
    ) as program:
        yield Served(browser, program)


def _token(dsn: str, name: str) -> str:
    done = holdfast(
        "token", "add", name, "--role", ROLE, "--reason", "benchmark", "--json", dsn=dsn
    )
    match = re.search(r"hft_[0-9A-Za-z_-]+", done.stdout)
    if match is None:
        raise RuntimeError(f"there is no token: {done.stderr}")
    return match[0]


def _address(process: subprocess.Popen[str]) -> str:
    lines: list[str] = []
    for line in process.stderr or ():
        lines.append(line)
        if match := START.search(line):
            return match[1]
    raise RuntimeError(f"the server did not start: {''.join(lines)}")


WHOLE = re.compile(r"Seq Scan on (?:entry|entry_key|attempt|lane)(?:_\d{8})?\b.*rows=(\d+)")
FEW = 10
"""A day without rows is read as fast as its index."""

PARAMETER = re.compile(r"\{[^}]+\}")
PROBES = ("/metrics", "/healthz")
READS = re.compile(rb"^(SELECT|WITH)", re.MULTILINE)


@dataclass
class Plans:
    """The statements that ran, and plans that read something large whole, by the name."""

    names: set[str] = field(default_factory=set)
    whole: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, plan: str) -> None:
        """Note a statement's plan."""
        self.names.add(name)
        if any(int(rows) > FEW for rows in WHOLE.findall(plan)):
            self.whole[name] = plan


@contextmanager
def explaining(*, could: bool) -> Iterator[Plans]:
    """Explain every statement of an operator's session in this process, right before it runs.

    With `could` the planner avoids reading whole tables, so that one is read only where no index
    serves: in a small database it is right to read them. Otherwise plans are those that run.
    """
    plans, run = Plans(), OperatorSession._run

    def explained(
        self: OperatorSession, name: str, parameters: Row | None = None
    ) -> psycopg.Cursor[Row]:
        text = statement(name)
        if READS.search(text):
            plans.take(name, _plan(self._connection, text, parameters, could=could))
        return run(self, name, parameters)

    OperatorSession._run = explained  # type: ignore[method-assign]
    try:
        yield plans
    finally:
        OperatorSession._run = run  # type: ignore[method-assign]


def _plan(
    connection: psycopg.Connection[Row], text: bytes, parameters: Row | None, *, could: bool
) -> str:
    if could:
        connection.execute("SET enable_seqscan = off")
    rows = ClientCursor(connection).execute(b"EXPLAIN " + text, parameters).fetchall()
    if could:
        connection.execute("RESET enable_seqscan")
    return "\n".join(str(next(iter(row.values()))) for row in rows)


def redelivery(dsn: str, names: Known) -> str:
    """Plan to send one entry again, and return the plan's id; nothing is applied."""
    with Replays.connect(dsn) as store:
        digest = Key.parse(names.key).digest
        return str(store.plan(ReplayFilter(keys=(digest,)), reason="benchmark")["id"])


def plans_of_all(dsn: str, *, could: bool) -> Plans:
    """Take every query once and return the plans; see `explaining`.

    Raises RuntimeError for an answer that is not as it should be.
    """
    names = known(dsn)
    requests = [*pages(names, redelivery(dsn, names)), *reads(names)]
    for role in AccessRole:
        # The server of tests has a token a role; those of a run before are still there.
        holdfast("token", "revoke", role, "--reason", "benchmark", dsn=dsn)
    with explaining(could=could) as plans:
        with (
            serving(dsn) as api,
            httpx.Client(base_url=api.url) as browser,
            come_in(browser, api.secrets["admin"]) as served,
        ):
            for each in requests:
                served.query(each)
        for each in lists(names):
            done = holdfast(*each.ask, dsn=dsn)
            if done.returncode not in each.ends:
                raise RuntimeError(f"{each.shows} ended with {done.returncode}: {done.stderr}")
    return plans


def missed(queries: Iterable[Query]) -> list[str]:
    """Return the paths of routes that none of the queries goes to; files and probes are none."""
    left = {*_pages(), *_reads()}
    paths = {each.ask[0].partition("?")[0] for each in queries if each.kind != "cli"} | LONG
    # A path that is written out comes before one with a parameter in its place.
    order = sorted(left, key=lambda path: len(PARAMETER.findall(path)))
    for path in paths:
        for route in order:
            if re.fullmatch(PARAMETER.sub("[^/]+", route), path):
                left.discard(route)
                break
    return sorted(left)


def _pages() -> Iterable[str]:
    for router in (login.router, *routes.ROUTERS):
        for route in router.routes:
            if isinstance(route, APIRoute) and "GET" in route.methods:
                yield route.path


def _reads() -> Iterable[str]:
    for path, methods in application(ApiSettings("")).openapi()["paths"].items():
        if "get" in methods and not path.startswith(PROBES):
            yield path
