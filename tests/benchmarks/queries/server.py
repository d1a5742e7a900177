"""`holdfast api serve` as a process, with two authenticated clients: a browser and a program."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import httpx

from holdfast.sink.contract.states import AccessRole
from tests.benchmarks.queries.query import Query
from tests.support.command import holdfast

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
    found = re.search(r"hft_[0-9A-Za-z_-]+", done.stdout)
    if found is None:
        raise RuntimeError(f"there is no token: {done.stderr}")
    return found[0]


def _address(process: subprocess.Popen[str]) -> str:
    lines: list[str] = []
    for line in process.stderr or ():
        lines.append(line)
        if found := START.search(line):
            return found[1]
    raise RuntimeError(f"the server did not start: {''.join(lines)}")
