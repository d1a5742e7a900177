"""The console under hostile hands: other sites, other roles, other people's text."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from html import unescape

import httpx
import psycopg
import pytest

from holdfast.dispatcher.api import serving
from holdfast.dispatcher.api.console.frame.guard import CSRF_HEADER, FORM_TYPE
from holdfast.dispatcher.api.console.routes.batches import line_diff
from holdfast.dispatcher.operators.why import lock_holders as holding
from tests.support.console.admin_api import (
    ANSWERED,
    CHANGES,
    DEAD,
    NAMES,
    PAGES,
    PATHS,
    Api,
    csrf_of,
    filled,
    key_text,
    logged_in,
)

pytestmark = pytest.mark.rest


WHY = "a test"


@pytest.fixture(scope="module")
def people(reading: Api) -> Iterator[dict[str, httpx.Client]]:
    """A browser for each role, and a second login of the administrator."""
    with ExitStack() as stack:
        yield {
            "viewer": stack.enter_context(logged_in(reading, "viewer")),
            "operator": stack.enter_context(logged_in(reading, "operator")),
            "admin": stack.enter_context(logged_in(reading, "admin")),
            "again": stack.enter_context(logged_in(reading, "admin")),
        }


def _csrf(browser: httpx.Client) -> str:
    return csrf_of(browser.get("/audit"))


def test_change_needs_token_of_this_login(reading: Api, people: dict[str, httpx.Client]) -> None:
    assert len(CHANGES) >= 11
    admin, audited = people["admin"], reading.audited()
    right, of_another_login = _csrf(admin), _csrf(people["again"])
    form = {"reason": WHY, "id": "1"}
    hostile: list[tuple[int, dict[str, str], dict[str, str]]] = [
        (403, form, {}),
        (403, {**form, "csrf": of_another_login}, {}),
        (403, {**form, "csrf": right.upper()}, {}),
        (403, {**form, "csrf": right}, {CSRF_HEADER: of_another_login}),
        (403, {**form, "csrf": right}, {"Origin": "null"}),
        *(
            (403, {**form, "csrf": right}, {"Sec-Fetch-Site": site})
            for site in ("cross-site", "same-site", "none", "SAME-ORIGIN", "")
        ),
    ]
    for path in map(filled, CHANGES):
        for status, fields, headers in hostile:
            answer = admin.post(path, data=fields, headers=headers)
            assert answer.status_code == status, (path, fields, headers)
        for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json", ""):
            body = f"csrf={right}&reason=x".encode()
            answer = admin.post(path, content=body, headers={"Content-Type": kind})
            assert answer.status_code == 415, (path, kind)
        with httpx.Client(base_url=reading.url) as nobody:
            answer = nobody.post(path, data={**form, "csrf": right})
            assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
    assert reading.audited() == audited


def test_viewer_changes_nothing_login_needed(reading: Api, people: dict[str, httpx.Client]) -> None:
    viewer, audited = people["viewer"], reading.audited()
    form = {"csrf": _csrf(viewer), "reason": WHY, "id": "1", "count": "1", "plan": NAMES["id"]}
    for path in map(filled, CHANGES):
        if path != "/logout":
            assert viewer.post(path, data=form).status_code == 403, path
    with httpx.Client(base_url=reading.url) as nobody:
        for path in map(filled, PAGES):
            answer = nobody.get(path)
            if path == "/live":
                assert "the login ended" in answer.text
            else:
                assert answer.status_code == 303, path
                assert answer.headers["location"].startswith("/login"), path
    assert reading.audited() == audited


def test_no_other_method_does_anything(reading: Api, people: dict[str, httpx.Client]) -> None:
    admin, audited = people["admin"], reading.audited()
    form = {"csrf": _csrf(admin), "reason": WHY}
    override = {"X-HTTP-Method-Override": "POST", "Content-Type": FORM_TYPE}
    for path in {filled(path) for _, path in PATHS}:
        for method in ("HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE"):
            answer = admin.request(method, path, data=form, headers=override)
            assert answer.status_code in (404, 405), (method, path)
        assert admin.get(path, params={"_method": "POST"}, headers=override).status_code < 500
    assert reading.audited() == audited


@pytest.mark.parametrize(
    "address",
    [
        "/entries?subject=a%00b",
        "/entries?type=%00",
        "/entries?since=%00",
        "/entries?since=0001-01-01T00:00:00%2B14:00",
        "/entries?until=9999-12-31T23:59:59-14:00",
        f"/entries?subject={'x' * 1025}",
        "/audit?actor=%00",
        "/dead?endpoint=%00",
        "/quarantine?stream=%00",
        "/subjects?prefix=%00",
        "/subjects?after=%00",
        "/subjects/show?name=a%00",
        "/batches?stream=%00",
        "/batches/show?stream=%00&batch_id=1",
        "/replays/new?subject=%00",
        "/replays/%00%00%00%00%00%00%00%00",
        "/entries/%00",
        "/search?q=%00",
        "/dead/1?body=please",
    ],
)
def test_impossible_filter_is_refused(people: dict[str, httpx.Client], address: str) -> None:
    assert people["operator"].get(address).status_code == 422


def test_shown_bodies_are_on_record(reading: Api, people: dict[str, httpx.Client]) -> None:
    key, operator = key_text(DEAD), people["operator"]
    page, audited = f"/entries/{key}", reading.audited()
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    for path in (
        page,
        f"{page}/curl",
        "/dead/1",
        "/quarantine/1",
        f"/suppressed/{key_text('j_1', 3)}",
        "/dead",
        "/subjects/show?name=m_dead",
    ):
        for address, headers in ((path, {}), (_asked(path), elsewhere)):
            answer = operator.get(address, headers=headers)
            assert answer.status_code == 200, address
            for part in (ANSWERED, "exposure_minor", "what was set aside"):
                assert part not in unescape(answer.text), (address, headers)
    assert reading.audited() == audited, "nothing was shown, nothing is on record"
    for path, part in ((page, ANSWERED), (page, "exposure_minor"), (f"{page}/curl", "webhook-id")):
        assert part in unescape(operator.get(_asked(path)).text)
        noted = reading.audited()[-1]
        assert noted[:3] == ("entry.read", key, "token operator")
    assert people["viewer"].get(_asked(page)).status_code == 403


def _asked(path: str) -> str:
    name = "text" if path.startswith("/quarantine/") else "body"
    return path if "?" in path or path == "/dead" else f"{path}?{name}=shown"


def test_what_other_sessions_run_is_not_for_viewers(
    reading: Api, people: dict[str, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "SNAPSHOT_SECONDS", 0.0)
    secret, key = "a-query-of-somebody", key_text("m_1")
    addresses = {
        f"/entries/{key}": f"/entries/{key}/why",
        "/subjects/show?name=m_1": "/subjects/named/why?name=m_1",
        "/database": "/database",
    }
    with psycopg.connect(reading.dsn) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute(f"SELECT '{secret}'".encode())
        for page, route in addresses.items():
            for role, shown in (("viewer", False), ("operator", True)):
                assert (secret in people[role].get(page).text) == shown, (page, role)
                assert (secret in reading.ask("GET", route, role).text) == shown, (route, role)
        assert secret not in reading.ask("GET", f"/entries/{key}/trace", "viewer").text


@pytest.mark.parametrize(
    "text", ["http://[", "http://[::1", "//[x", "https://evil.example/a", "\xe9"]
)
def test_page_that_a_fragment_names_cannot_be_elsewhere(reading: Api, text: str) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": text.encode("latin-1")}
    answer = httpx.get(f"{reading.url}/entries", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] in ("/login", "/login?next=%2Fa")


def test_work_for_a_hostile_text_is_bounded(people: dict[str, httpx.Client]) -> None:
    began = time.process_time()
    spaces = people["viewer"].get("/search", params={"q": "a" + " " * 30_000 + "x"})
    assert spaces.status_code == 422
    line_diff(str([0, 1] * 495), str([0, 0, 1, 1] * 247))
    assert time.process_time() - began < 5


def test_client_taking_no_answer_is_hung_up(reading: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "TAKE_SECONDS", 0.5)
    url = httpx.URL(reading.url)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with line:
        line.connect((url.host, url.port or 0))
        line.settimeout(60)
        request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
        while _takes(line, request * 50):
            """It has room left."""
    assert reading.ask("GET", "/status").status_code == 200


def _takes(line: socket.socket, request: bytes) -> bool:
    try:
        line.sendall(request)
    except (ConnectionResetError, BrokenPipeError):
        return False
    return True
