"""Clients that are slow, however many, keep nobody else from being answered.

Real: the server with its sockets, the database.
"""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import psycopg
import pytest

from holdfast.dispatcher.api import serving as api_serving
from holdfast.dispatcher.api import shield
from holdfast.dispatcher.operators.tokens.store import TOKEN_PREFIX
from tests.support.console.admin_api import V1, Api, serving
from tests.support.servers.databases import copy_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest


SLOW = 260
"""More than the requests that are worked on at once."""


@pytest.fixture(scope="module")
def api(server_dsn: str, template_database: str) -> Iterator[Api]:
    with copy_of(server_dsn, template_database) as dsn, serving(dsn) as api:
        yield api


def _head(path: str, *lines: str) -> bytes:
    arguments = (f"POST {path} HTTP/1.1", "host: 127.0.0.1", *lines, "content-length: 1000")
    return "\r\n".join([*arguments, "", ""]).encode()


TOKENS = _head(f"{V1}/tokens", "content-type: application/json")
FORM = "content-type: application/x-www-form-urlencoded"


@contextmanager
def _lines(api: Api, count: int) -> Iterator[list[socket.socket]]:
    url = httpx.URL(api.url)
    with ExitStack() as stack:
        address = (url.host, url.port or 0)
        yield [stack.enter_context(socket.create_connection(address, 30)) for _ in range(count)]


def _status(line: socket.socket) -> int:
    """Read the answer to the end of the connection; 0 without one."""
    came = b""
    try:
        while more := line.recv(65536):
            came += more
    except ConnectionResetError:
        pass
    return int(came.split(b" ", 2)[1]) if came else 0


def _answered(api: Api) -> list[int]:
    paths = ("/healthz/live", "/healthz/ready")
    health = [api.client.get(api.url + path).status_code for path in paths]
    return [*health, api.ask("GET", "/status", "viewer").status_code]


@pytest.mark.parametrize(
    ("head", "answer"), [(TOKENS, 401), (_head("/login", FORM), None)], ids=["api", "login"]
)
def test_slow_bodies_lock_nobody_out(
    api: Api, head: bytes, answer: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with _lines(api, SLOW) as lines:
        for line in lines:
            line.sendall(head + b"{")
        assert _answered(api) == [200, 200, 200]
        secret = {"token": api.secrets["viewer"]}
        assert api.client.post(f"{api.url}/login", data=secret).status_code == 303
        if answer is not None:
            assert {_status(line) for line in lines} == {answer}
    gone = "holdfast_api_requests_in_flight 1.0"
    eventually(lambda: gone in api.client.get(f"{api.url}/metrics").text)
    assert caplog.records == [], "whoever leaves writes no line"


@pytest.mark.parametrize("token", [None, f"{TOKEN_PREFIX}wrong"])
@pytest.mark.parametrize("path", [f"{V1}/tokens", f"{V1}/endpoints"])
def test_body_of_a_stranger_is_not_read(api: Api, path: str, token: str | None) -> None:
    lines = () if token is None else (f"authorization: Bearer {token}",)
    with _lines(api, 1) as (line,):
        line.sendall(_head(path, "content-type: application/json", *lines))
        assert _status(line) == 401


def test_form_of_a_stranger_is_not_read(api: Api) -> None:
    with _lines(api, 1) as (line,):
        line.sendall(_head("/logout", FORM))
        assert line.recv(65536).startswith(b"HTTP/1.1 303 ")


def test_form_of_the_login_has_a_small_limit(api: Api) -> None:
    form = {"token": "x" * shield.STRANGER_BYTES_MAX}
    assert api.client.post(f"{api.url}/login", data=form).status_code == 413


def test_body_below_the_minimum_rate_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shield, "GRACE_SECONDS", 0.3)
    token = f"authorization: Bearer {api.secrets['admin']}"
    with _lines(api, 1) as (line,):
        line.sendall(_head(f"{V1}/tokens", "content-type: application/json", token) + b"{")
        assert _status(line) == 408


def test_new_connection_replaces_longest_waiting(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_serving, "CONNECTIONS_MAX", 20)
    monkeypatch.setattr(api_serving, "HEAD_SECONDS", 600.0)
    with _lines(api, 30) as lines:
        assert _answered(api) == [200, 200, 200]
        assert _status(lines[0]) == 0
        lines[-1].sendall(b"GET /healthz/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert lines[-1].recv(65536).startswith(b"HTTP/1.1 200 ")


def test_health_is_answered_while_every_thread_waits(api: Api) -> None:
    """As many requests as there are threads wait for a row that another session holds."""
    with psycopg.connect(api.dsn) as holder, ThreadPoolExecutor(50) as threads:
        holder.execute("LOCK TABLE holdfast.access_token")
        waiting = [threads.submit(api.ask, "GET", "/status", "viewer") for _ in range(50)]
        live = httpx.get(f"{api.url}/healthz/live", timeout=3)
        ready = httpx.get(f"{api.url}/healthz/ready", timeout=20)
        holder.rollback()
        assert {each.result().status_code for each in waiting} <= {200, 503}
    assert (live.status_code, ready.status_code in (200, 503)) == (200, True)


def test_right_token_is_answered_among_a_burst_of_wrong_ones(api: Api) -> None:
    """They wait for one row, all at once, and the right one came last."""
    head = "GET {}/status HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n\r\n"
    with (
        psycopg.connect(api.dsn) as holder,
        ThreadPoolExecutor(1) as thread,
        _lines(api, SLOW) as lines,
    ):
        holder.execute("LOCK TABLE holdfast.access_token")
        for number, line in enumerate(lines):
            line.sendall(head.format(V1, f"{TOKEN_PREFIX}burst{number}").encode())
        right = thread.submit(api.ask, "GET", "/status", "operator")
        waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        eventually(lambda: api.rows(waiting)[0]["n"] >= 8)
        holder.rollback()
        assert right.result().status_code == 200
        assert {int(line.recv(65536).split(b" ", 2)[1]) for line in lines} <= {401, 429}
