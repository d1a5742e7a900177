"""Hostile requests: too long, too many, too slow, with odd headers, for what is not theirs."""

import json
import logging
import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.dispatcher.api import access, shield
from holdfast.dispatcher.api import serving as api_serving
from holdfast.dispatcher.api.access import FAILURES_MAX, Failures
from holdfast.dispatcher.api.settings import BODY_BYTES_MAX, ApiSettings
from holdfast.dispatcher.operators.common import session as operator_session
from holdfast.dispatcher.operators.tokens.store import TOKEN_PREFIX
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.console.admin_api import V1, Api, serving
from tests.support.refusal import raises_code
from tests.support.servers.databases import copy_of
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is refused
CANARY = "pw-canary-3141"
TOKENS = f"{V1}/tokens"
NEW = {"name": "x", "role": "viewer", "days": 1, "reason": "a test"}


@pytest.fixture(scope="module")
def api(server_dsn: str, template_database: str) -> Iterator[Api]:
    """An API whose login has a password that is easily found."""
    name = f"holdfast_test_{secrets.token_hex(6)}"
    login = {"login": sql.Identifier(name), "password": sql.Literal(CANARY)}
    with copy_of(server_dsn, template_database) as dsn, psycopg.connect(dsn, autocommit=True) as db:
        db.execute(
            sql.SQL("CREATE ROLE {login} SUPERUSER LOGIN PASSWORD {password}").format(**login)
        )
        try:
            with serving(make_conninfo(dsn, user=name, password=CANARY)) as api:
                yield api
        finally:
            db.execute(sql.SQL("DROP ROLE {login}").format(**login))


def _raw(api: Api, request: bytes, *rest: bytes) -> tuple[int, bytes]:
    """Send bytes as they are; returns the status and everything that came."""
    url = httpx.URL(api.url)
    with socket.create_connection((url.host, url.port or 0), 30) as line:
        line.sendall(request)
        for each in rest:
            try:
                line.sendall(each)
            except OSError:
                break  # it was refused before the end
        came = b""
        while b"\r\n\r\n" not in came and (more := line.recv(65536)):
            came += more
    return int(came.split(b" ", 2)[1]) if came else 0, came


def _head(api: Api, *lines: str, method: str = "POST", path: str = TOKENS) -> bytes:
    values = {"host": "127.0.0.1", "authorization": f"Bearer {api.secrets['admin']}"}
    headers = [f"{name}: {value}" for name, value in values.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *headers, *lines, "", ""]).encode()


def _count(api: Api) -> int:
    return len(api.rows("SELECT id FROM holdfast.access_token"))


def test_guesses_are_cut_off_and_no_right_token_is(api: Api) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.9")) as attacker:

        def ask(secret: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {secret}"}
            return attacker.get(f"{api.url}{V1}/status", headers=headers)

        assert ask(api.secrets["viewer"]).status_code == 200
        same = [ask(TOKEN_PREFIX + "same").status_code for _ in range(FAILURES_MAX + 2)]
        assert set(same) == {401}, "a forgotten job is refused, and locks nobody out"
        others = [ask(f"{TOKEN_PREFIX}{n}") for n in range(FAILURES_MAX)]
        assert [each.status_code for each in others] == [401] * (FAILURES_MAX - 1) + [429]
        wait = int(others[-1].headers["retry-after"])
        assert 0 < wait <= 61
        assert others[-1].headers["ratelimit-policy"] == f'"wrong-tokens";q={FAILURES_MAX};w=60'
        assert others[-1].headers["ratelimit"] == f'"wrong-tokens";r=0;t={wait}'
        assert ask(api.secrets["viewer"]).status_code == 200, "it was right before"
        assert ask(api.secrets["operator"]).status_code == 200, "it was never sent before"
    assert api.ask("GET", "/status", "operator").status_code == 200


def test_guesses_are_forgotten_and_take_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    failures = Failures(lambda: now[0])
    for n in range(FAILURES_MAX):
        assert failures.wait("a", "new") == 0
        failures.add("a", str(n))
    assert failures.wait("a", "new") == pytest.approx(access.FAILURES_SECONDS)
    assert failures.wait("b", "new") == 0
    now[0] += access.FAILURES_SECONDS + 1
    assert failures.wait("a", "new") == 0
    monkeypatch.setattr(access, "ADDRESSES_MAX", 3)
    monkeypatch.setattr(access, "KNOWN_MAX", 3)
    for n in range(10):
        failures.add(str(n), "wrong")
        failures.right(str(n))
    assert [failures.known(str(n), "wrong") for n in (6, 7, 9)] == [False, True, True]
    assert len(failures._right) == 3


def test_body_beyond_the_cap_is_refused_before_it_is_read(api: Api) -> None:
    before = _count(api)
    declared = _head(api, "content-type: application/json", f"content-length: {10 * 2**20}")
    status, came = _raw(api, declared)
    assert (status, b"1,048,576 bytes" in came) == (413, True)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    chunked = _head(api, "content-type: application/json", "transfer-encoding: chunked")
    status, _ = _raw(api, chunked, *[chunk] * (BODY_BYTES_MAX // 65536 + 2))
    assert status == 413
    both = _head(api, "content-length: 5", "transfer-encoding: chunked")
    status, came = _raw(api, both, b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert (status, b"connection: close" in came) == (400, True), "they smuggle no second request"
    assert _count(api) == before


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "", "[::2]", "a@b"),
        # What would be read as a part of the address that is asked for.
        *("localhost/api/", "localhost?x", "localhost#x", "evil@localhost", "localhost:1@evil"),
        *("localhost:", "localhost:x", "localhost:123456", "[::1", "127.0.0.1\\x"),
    ],
)
def test_name_that_is_not_the_servers_is_refused(api: Api, host: str) -> None:
    answer = api.ask("GET", "/status", headers={"Host": host})
    assert answer.status_code == 421
    assert "evil" not in answer.text
    for ours in ("localhost", "127.0.0.1:1", "[::1]"):
        assert api.ask("GET", "/status", headers={"Host": ours}).status_code == 200


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"\xff\xfe{", "application/json"),
        (b'{"name": "x", "name": "y"}', "application/json"),
        (b"[" * 200_000, "application/json"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "application/json"),
        (b'{"days": ' + b"9" * 10_000 + b"}", "application/json"),
        (b"NaN", "application/json"),
        (b"null", "application/json"),
        (b'"x"', "application/json"),
        (json.dumps(NEW).encode(), "text/plain"),
        (json.dumps(NEW).encode(), "application/x-www-form-urlencoded"),
        (b"name=x&role=admin&days=1&reason=r", "application/x-www-form-urlencoded"),
        (json.dumps(NEW).encode().replace(b"{", b"{" + b" " * 900_000 + b'"z": 1, '),) * 1
        + ("application/json",),
    ],
    ids=lambda text: str(text[:24]),
)
def test_body_that_is_no_such_thing_is_refused(api: Api, body: bytes, kind: str) -> None:
    before = _count(api)
    answer = api.ask("POST", "/tokens", content=body, headers={"Content-Type": kind})
    assert answer.status_code in (400, 422), answer.text[:300]
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 5000
    assert _count(api) == before


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"reason": "nul\x00"},
        {"reason": "split\r\nX-Injected: 1"},
        {"reason": "\x1b[2J"},
        {"reason": ""},
        {"name": "../../etc"},
        {"name": "x" * 64},
        {"name": "x\n"},
        {"days": 10**300},
        {"days": -1},
        {"days": 1.5},
        {"days": "1"},
        {"role": "owner"},
        {"role": ["admin"]},
        {"role": None},
    ],
    ids=ascii,
)
def test_invalid_field_is_not_echoed(api: Api, change: dict[str, Any]) -> None:
    before, audited = _count(api), api.audited()
    answer = api.ask("POST", "/tokens", json={**NEW, **change})
    assert answer.status_code == 422, answer.text
    assert answer.json()["faults"]
    for value in change.values():
        assert str(value) not in ("../../etc", "X-Injected") or str(value) not in answer.text
    assert (_count(api), api.audited()) == (before, audited)


def test_half_of_a_surrogate_pair_is_no_text(api: Api) -> None:
    before = _count(api)
    body = json.dumps({**NEW, "reason": "half \ud800"}).encode()
    answer = api.ask("POST", "/tokens", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, _count(api)) == (422, before)


def test_text_of_any_script_and_markup_is_kept_to_the_letter(api: Api) -> None:
    reason = "<script>alert(1)</script> ' OR 1=1; -- \u202e \U0001f4b8\nX-Injected: 1"
    answer = api.ask("POST", "/tokens", json={**NEW, "name": "kept", "reason": reason})
    assert answer.status_code == 201
    assert "x-injected" not in answer.headers
    assert api.audited()[-1][3] == reason


@pytest.mark.parametrize(
    "name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL"]
)
def test_header_does_not_change_what_is_asked(api: Api, name: str) -> None:
    headers = {name: "/api/v1/tokens" if name.endswith("URL") else "POST"}
    assert api.ask("GET", "/status", "viewer", headers=headers).status_code == 200
    assert api.ask("GET", "/tokens", "viewer", headers=headers).status_code == 403
    assert api.ask("DELETE", "/tokens", headers=headers).status_code == 405
    assert api.ask("TRACE", "/tokens", headers=headers).status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/endpoints/..%2f..%2fetc%2fpasswd",
        "/endpoints/%2e%2e",
        "/tokens/../../../etc/passwd/revoke",
        "/streams/..%2f..%2fetc%2fpasswd",
        "/replays/..%5c..%5c",
        "/endpoints/a%00b",
        "/endpoints/a%0d%0aX-Injected:%201",
        "/endpoints/%ff%fe",
        "/../../../etc/passwd",
        "//evil.example/",
        "/status/",
        "/tokens/" + "x" * 5000 + "/revoke",
    ],
)
def test_path_leads_nowhere_but_to_a_route(api: Api, path: str) -> None:
    for method in ("GET", "POST"):
        status, came = _raw(api, _head(api, "content-length: 0", method=method, path=V1 + path))
        assert status in (400, 404, 405, 422), came
        assert b"root:" not in came
        assert b"x-injected" not in came.lower()
        assert b"location" not in came.lower()


def test_head_that_is_too_long_or_no_http_is_refused(api: Api) -> None:
    long = _head(api, f"x-a: {'a' * 200_000}", method="GET")
    assert _raw(api, long)[0] in (0, 400, 431)
    assert _raw(api, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")[0] in (0, 400)
    assert api.ask("GET", "/status").status_code == 200


def test_connection_without_a_request_is_closed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_serving, "HEAD_SECONDS", 0.2)
    assert _raw(api, b"") == (0, b"")
    assert _raw(api, b"GET / HTTP/1.1\r\nhost: loc") == (0, b"")
    # A second request on a connection has its time as well.
    first = _head(api, method="GET", path=f"{V1}/status")
    url = httpx.URL(api.url)
    with closing(socket.create_connection((url.host, url.port or 0), 30)) as line:
        line.sendall(first + b"GET / HT")
        while line.recv(65536):
            """It answers the first, and hangs up."""
    assert api.ask("GET", "/status").status_code == 200


def test_body_that_never_comes_is_not_awaited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shield, "BODY_SECONDS", 0.2)
    slow = _head(api, "content-type: application/json", "content-length: 100")
    status, came = _raw(api, slow, b'{"name"')
    assert (status, b"did not arrive" in came) == (408, True)


def test_nothing_secret_is_in_an_answer_or_in_the_log(
    api: Api, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for client in ("httpx", "httpcore"):
        caplog.set_level(logging.CRITICAL, client)
    described = api.client.get(f"{api.url}/openapi.json").json()["paths"]
    texts = []
    for path in (*described, "/metrics", "/healthz/live", "/healthz/ready", "/login", "/nowhere"):
        shown = path.replace("{batch_id}", "1").replace("{number}", "1")
        for who in ("admin", "viewer"):
            headers = {"Authorization": f"Bearer {api.secrets[who]}"}
            answer = api.client.get(api.url + shown, headers=headers)
            assert answer.status_code < 500, (path, answer.text)
            texts += [answer.text, str(answer.headers)]
    wrong = api.ask("GET", f"/status?token={api.secrets['operator']}")
    everything = "\n".join([*texts, wrong.text, caplog.text, *capfd.readouterr()])
    for secret in (CANARY, *api.secrets.values()):
        assert secret not in everything
    for leak in ("Traceback", "psycopg", "site-packages"):
        assert leak not in everything


def test_every_answer_has_browser_security_headers(api: Api) -> None:
    answers = [
        api.ask("GET", "/status"),
        api.ask("GET", "/status", None),
        api.ask("GET", "/nowhere"),
        api.ask("GET", "/status", headers={"Host": "evil.example"}),
        api.client.get(f"{api.url}/login"),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for limit in ("form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert limit in policy, "the default source does not limit these"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert api.ask("OPTIONS", "/tokens", None, headers=preflight).status_code == 405


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.168.0.7", "holdfast.example"])
def test_address_that_others_reach_needs_a_proxy_with_tls(host: str) -> None:
    with raises_code("tls_required") as refused:
        ApiSettings("", host=host).check()
    assert refused.value.exit_code == ExitCode.USAGE
    ApiSettings("", host=host, behind_proxy=True).check()
    for loopback in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        ApiSettings("", host=loopback).check()


def test_command_refuses_before_anything_listens(dsn: str) -> None:
    done = holdfast("api", "serve", "--host", EVERYWHERE, dsn=dsn)
    assert (done.returncode, "Nothing was started" in done.stderr) == (ExitCode.USAGE, True)
    assert "listening" not in done.stderr


def test_database_that_is_away_is_a_503_and_comes_back(dsn: str, server_dsn: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    gone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    with serving(dsn) as api, psycopg.connect(server_dsn, autocommit=True) as server:
        assert api.ask("GET", "/status").status_code == 200
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        server.execute(gone, (name,))
        for answer in (api.ask("GET", "/status"), api.ask("POST", "/tokens", json=NEW)):
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) > 0
            assert str(name) not in answer.text
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
        eventually(lambda: api.ask("GET", "/status").status_code == 200)


def test_long_statement_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_session, "STATEMENT_SECONDS", 1)
    with serving(world.dsn, connections=1) as api:
        before = api.audited()
        with world.db.transaction():
            world.db.execute("LOCK TABLE holdfast.endpoint")
            body = {"reason": "a test"}
            slow = api.ask("POST", "/endpoints/payouts/pause", json=body)
            assert (slow.status_code, "took too long" in slow.json()["detail"]) == (503, True)
        assert api.audited() == before
        assert api.ask("POST", "/endpoints/payouts/pause", json=body).status_code == 404


def test_db_error_hidden_before_login(dsn: str) -> None:
    with serving(dsn) as api, psycopg.connect(dsn, autocommit=True) as db:
        db.execute("REVOKE SELECT ON holdfast.access_token FROM holdfast_operator")
        answer = api.ask("GET", "/status")
        assert (answer.status_code, "access_token" in answer.text) == (503, False)


SLOW = 260
"""More than the requests that are worked on at once."""


def _slow_head(path: str, *lines: str) -> bytes:
    arguments = (f"POST {path} HTTP/1.1", "host: 127.0.0.1", *lines, "content-length: 1000")
    return "\r\n".join([*arguments, "", ""]).encode()


SLOW_TOKENS = _slow_head(f"{V1}/tokens", "content-type: application/json")

FORM = "content-type: application/x-www-form-urlencoded"


@contextmanager
def _lines(fresh_api: Api, count: int) -> Iterator[list[socket.socket]]:
    url = httpx.URL(fresh_api.url)
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


def _answered(fresh_api: Api) -> list[int]:
    paths = ("/healthz/live", "/healthz/ready")
    health = [fresh_api.client.get(fresh_api.url + path).status_code for path in paths]
    return [*health, fresh_api.ask("GET", "/status", "viewer").status_code]


@pytest.mark.parametrize(
    ("head", "answer"),
    [(SLOW_TOKENS, 401), (_slow_head("/login", FORM), None)],
    ids=["api", "login"],
)
def test_slow_bodies_lock_nobody_out(
    fresh_api: Api, head: bytes, answer: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with _lines(fresh_api, SLOW) as lines:
        for line in lines:
            line.sendall(head + b"{")
        assert _answered(fresh_api) == [200, 200, 200]
        secret = {"token": fresh_api.secrets["viewer"]}
        assert fresh_api.client.post(f"{fresh_api.url}/login", data=secret).status_code == 303
        if answer is not None:
            assert {_status(line) for line in lines} == {answer}
    gone = "holdfast_api_requests_in_flight 1.0"
    eventually(lambda: gone in fresh_api.client.get(f"{fresh_api.url}/metrics").text)
    assert caplog.records == [], "whoever leaves writes no line"


@pytest.mark.parametrize("token", [None, f"{TOKEN_PREFIX}wrong"])
@pytest.mark.parametrize("path", [f"{V1}/tokens", f"{V1}/endpoints"])
def test_body_of_a_stranger_is_not_read(fresh_api: Api, path: str, token: str | None) -> None:
    lines = () if token is None else (f"authorization: Bearer {token}",)
    with _lines(fresh_api, 1) as (line,):
        line.sendall(_slow_head(path, "content-type: application/json", *lines))
        assert _status(line) == 401


def test_form_of_a_stranger_is_not_read(fresh_api: Api) -> None:
    with _lines(fresh_api, 1) as (line,):
        line.sendall(_slow_head("/logout", FORM))
        assert line.recv(65536).startswith(b"HTTP/1.1 303 ")


def test_form_of_the_login_has_a_small_limit(fresh_api: Api) -> None:
    form = {"token": "x" * shield.STRANGER_BYTES_MAX}
    assert fresh_api.client.post(f"{fresh_api.url}/login", data=form).status_code == 413


def test_body_below_the_minimum_rate_is_refused(
    fresh_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shield, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(shield, "BODY_SECONDS", 3600.0)
    token = f"authorization: Bearer {fresh_api.secrets['admin']}"
    with _lines(fresh_api, 1) as (line,):
        line.sendall(_slow_head(f"{V1}/tokens", "content-type: application/json", token) + b"{")
        assert _status(line) == 408


def test_new_connection_replaces_longest_waiting(
    fresh_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_serving, "CONNECTIONS_MAX", 20)
    monkeypatch.setattr(api_serving, "HEAD_SECONDS", 600.0)
    # An idle line of the shared client has waited longest, and may be taken from it as it asks.
    with _lines(fresh_api, 30) as lines, httpx.Client(timeout=60) as newcomer:
        assert _answered(replace(fresh_api, client=newcomer)) == [200, 200, 200]
        assert _status(lines[0]) == 0
        lines[-1].sendall(b"GET /healthz/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert lines[-1].recv(65536).startswith(b"HTTP/1.1 200 ")


def test_health_is_answered_while_every_thread_waits(fresh_api: Api) -> None:
    """As many requests as there are threads wait for a row that another session holds."""
    with psycopg.connect(fresh_api.dsn) as holder, ThreadPoolExecutor(50) as threads:
        holder.execute("LOCK TABLE holdfast.access_token")
        waiting = [threads.submit(fresh_api.ask, "GET", "/status", "viewer") for _ in range(50)]
        live = httpx.get(f"{fresh_api.url}/healthz/live", timeout=3)
        ready = httpx.get(f"{fresh_api.url}/healthz/ready", timeout=20)
        holder.rollback()
        assert {each.result().status_code for each in waiting} <= {200, 503}
    assert (live.status_code, ready.status_code in (200, 503)) == (200, True)


def test_right_token_is_answered_among_a_burst_of_wrong_ones(fresh_api: Api) -> None:
    """They wait for one row, all at once, and the right one came last."""
    head = "GET {}/status HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n\r\n"
    with (
        psycopg.connect(fresh_api.dsn) as holder,
        ThreadPoolExecutor(1) as thread,
        _lines(fresh_api, SLOW) as lines,
    ):
        holder.execute("LOCK TABLE holdfast.access_token")
        for number, line in enumerate(lines):
            line.sendall(head.format(V1, f"{TOKEN_PREFIX}burst{number}").encode())
        right = thread.submit(fresh_api.ask, "GET", "/status", "operator")
        waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        eventually(lambda: fresh_api.rows(waiting)[0]["n"] >= 8)
        holder.rollback()
        assert right.result().status_code == 200
        assert {int(line.recv(65536).split(b" ", 2)[1]) for line in lines} <= {401, 429}
