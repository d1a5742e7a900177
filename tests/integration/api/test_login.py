"""Logging in at the console: what a browser holds, and what another site can make it do."""

from collections.abc import Iterator

import httpx
import pytest

from holdfast.dispatcher.api.console.frame.guard import CSRF_FIELD, FORM_TYPE, safe_path
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.tokens.store import LOGIN_PREFIX
from tests.support.console.admin_api import Api, serving
from tests.support.servers.databases import copy_of

CROSS = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}


@pytest.fixture(scope="module")
def api(server_dsn: str, template_database: str) -> Iterator[Api]:
    with copy_of(server_dsn, template_database) as dsn, serving(dsn) as api:
        yield api


def _browser(api: Api) -> httpx.Client:
    return httpx.Client(base_url=api.url, timeout=60)


def _login(browser: httpx.Client, api: Api, next_path: str = "/", **headers: str) -> httpx.Response:
    form = {"token": api.secrets["operator"], "next": next_path}
    return browser.post("/login", data=form, headers=headers)


def _csrf(browser: httpx.Client) -> str:
    import hashlib
    import hmac

    secret = browser.cookies["holdfast"].encode()
    return hmac.digest(secret, b"csrf", hashlib.sha256).hex()


def test_link_leads_over_the_login_to_its_page(api: Api) -> None:
    with _browser(api) as browser:
        away = browser.get("/entries?stream=a&subject=m_1")
        assert away.status_code == 303
        assert away.headers["location"] == "/login?next=%2Fentries%3Fstream%3Da%26subject%3Dm_1"
        done = _login(browser, api, "/entries?stream=a&subject=m_1")
        assert (done.status_code, done.headers["location"]) == (
            303,
            "/entries?stream=a&subject=m_1",
        )
        cookie = done.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert browser.cookies["holdfast"].startswith(LOGIN_PREFIX)
        assert browser.get("/").status_code == 200
        out = browser.post("/logout", data={CSRF_FIELD: _csrf(browser)})
        assert (out.status_code, out.headers["location"]) == (303, "/login")
        assert browser.get("/").status_code == 303
    assert ("login", "operator", "token operator", "console") in api.audited()


def test_fragment_without_login_redirects_the_full_page(api: Api) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": f"{api.url}/entries?limit=1"}
    with _browser(api) as browser:
        answer = browser.get("/", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] == "/login?next=%2Fentries%3Flimit%3D1"


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "evil.example",
        "",
        "/a\r\nX-Injected: 1",
        "/é",
        "/login",
        "/logout?x=1",
    ],
)
def test_login_goes_on_only_to_a_path_of_this_server(api: Api, path: str) -> None:
    assert safe_path(path) == "/"
    with _browser(api) as browser:
        done = _login(browser, api, path)
        assert (done.status_code, done.headers["location"]) == (303, "/")
        assert "x-injected" not in done.headers
        assert "evil" not in browser.get("/login", params={"next": path}).text
    assert safe_path("/entries?q=//a") == "/entries?q=//a"


def test_wrong_token_is_no_login_and_a_login_is_no_token(api: Api) -> None:
    with _browser(api) as browser:
        for secret in ("hft_wrong", "", "hfl_x", api.secrets["operator"][:-1]):
            answer = browser.post("/login", data={"token": secret})
            assert answer.status_code == 401, answer.text
            assert "set-cookie" not in answer.headers
            assert secret == "" or secret not in answer.text
        for cookie in (api.secrets["operator"], "hfl_guess", "x" * 3000):
            browser.cookies.set("holdfast", cookie)
            assert browser.get("/").status_code == 303
            browser.cookies.clear()
        _login(browser, api)
        again = browser.post("/login", data={"token": browser.cookies["holdfast"]})
        assert again.status_code == 401


def test_cross_site_requests_cannot_log_in_or_out_or_change_data(api: Api) -> None:
    with _browser(api) as browser:
        assert _login(browser, api, **CROSS).status_code == 403
        assert _login(browser, api, Origin="null").status_code == 403
        assert "holdfast" not in browser.cookies
        assert _login(browser, api, Origin=api.url).status_code == 303
        first = browser.cookies["holdfast"]
        right = _csrf(browser)
        for form, headers in (
            ({"x": "1"}, {}),
            ({CSRF_FIELD: ""}, {}),
            ({CSRF_FIELD: "\u0660" * 64}, {}),
            ({CSRF_FIELD: right[:-1]}, {}),
            ({CSRF_FIELD: right}, CROSS),
            ({CSRF_FIELD: right}, {"Sec-Fetch-Site": "same-site"}),
            ({CSRF_FIELD: right}, {"Origin": "http://127.0.0.1:1"}),
        ):
            assert browser.post("/logout", data=form, headers=headers).status_code == 403
        assert browser.get("/logout").status_code == 405
        assert browser.get("/").status_code == 200
        _login(browser, api)
        assert browser.cookies["holdfast"] != first, "each login has a secret of its own"
        stale = browser.post("/logout", data={CSRF_FIELD: right})
        assert stale.status_code == 403, "a form of an earlier login counts no more"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"token": "x"}', "application/json", 415),
        (b"token=x", "text/plain", 415),
        (b"--x--", "multipart/form-data; boundary=x", 415),
        (b"token=%ff", FORM_TYPE, 422),
        (b"token=\xff", FORM_TYPE, 422),
        (b"token=a%00b", FORM_TYPE, 422),
        (b"a=1&" * 3000, FORM_TYPE, 422),
        (b"token=" + b"x" * 60_000, FORM_TYPE, 401),
        (b"token=" + b"x" * 500_000, FORM_TYPE, 413),
    ],
)
def test_what_is_no_form_is_refused(api: Api, body: bytes, kind: str, status: int) -> None:
    with _browser(api) as browser:
        answer = browser.post("/login", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert len(answer.content) < 20_000


def test_login_ends_when_its_token_is_revoked(api: Api) -> None:
    body = {"name": "shift", "role": "viewer", "days": 1, "reason": "a test"}
    api.secrets["shift"] = api.ask("POST", "/tokens", json=body).json()["secret"]
    with _browser(api) as browser:
        browser.post("/login", data={"token": api.secrets["shift"]})
        assert browser.get("/").status_code == 200
        api.ask("POST", "/tokens/shift/revoke", json={"reason": "over"})
        ended = browser.get("/")
        assert (ended.status_code, ended.headers["location"]) == (303, "/login")
        assert "holdfast" not in browser.cookies


def test_cookie_behind_a_proxy_is_https_and_host_only() -> None:
    from fastapi.responses import Response

    from holdfast.dispatcher.api.console.frame.guard import set_login

    response = Response()
    set_login(response, ApiSettings("", behind_proxy=True), "hfl_x")
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-holdfast=hfl_x;")
    assert "Secure" in cookie
    assert "Path=/" in cookie
    assert "Domain" not in cookie
