"""Who may do what: tokens and roles, and the login of the console."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import httpx
import pytest

from holdfast.dispatcher.api.app import application
from holdfast.dispatcher.api.console.frame.guard import CSRF_FIELD, FORM_TYPE, safe_path
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.common.session import operator_connection
from holdfast.dispatcher.operators.tokens.store import LOGIN_PREFIX, TOKEN_PREFIX, Holder, Tokens
from holdfast.sink.contract.states import AccessRole
from tests.support.command import holdfast
from tests.support.console.admin_api import V1, Api, serving
from tests.support.servers.databases import copy_of

VIEWER, OPERATOR, ADMIN = AccessRole

LEAST = {
    "GET": {
        VIEWER: """
            /attempts /audit /batches /batches/{stream}/{batch_id}
            /batches/{stream}/{batch_id}/diff /check /database /dead-letters
            /dead-letters/{number} /dispatchers /endpoints /endpoints/{name} /entries /entries/{key}
            /entries/{key}/attempts /entries/{key}/trace /entries/{key}/why /overview /proposals
            /quarantine /quarantine/{number} /receipts /replays /replays/{id} /replays/{id}/items
            /replays/{id}/status /status /streams /streams/{name} /subjects /subjects/named
            /subjects/named/why /suppressed /suppressed/{key} /triage
        """,
        OPERATOR: "/proposals/{proposal_id}",
        ADMIN: "/tokens",
    },
    "PUT": {OPERATOR: "/redeliveries/{replay_id} /reissues/{replay_id} /replays/{replay_id}"},
    "PATCH": {ADMIN: "/endpoints/{name}"},
    "POST": {
        OPERATOR: """
            /dead-letters/dismiss /decisions/block /decisions/release
            /endpoints/{name}/pause /endpoints/{name}/resume
            /entries/{key}/cancel
            /proposals/{proposal_id}/cancel /quarantine/dismiss /quarantine/requeue
            /reissues/{replay_id}/apply
            /replays/{replay_id}/apply /replays/{replay_id}/cancel /subjects/hold
            /subjects/pass /subjects/resume
        """,
        ADMIN: """
            /batches/{stream}/{batch_id}/accept
            /endpoints /endpoints/{name}/disable /endpoints/{name}/rotate-secret
            /proposals/{proposal_id}/approve /reissues/{replay_id}/approve
            /replays/{replay_id}/approve /streams/{name}/adopt
            /streams/{name}/rename /subjects/repair /suppressed/{key}/write /tokens
            /tokens/{name}/revoke
        """,
    },
}
"""The least role that each route takes: a new route needs a place here."""

ROUTES = {
    (method, path): role
    for method, roles in LEAST.items()
    for role, paths in roles.items()
    for path in paths.split()
}
NOBODY = ("none", "wrong", "malformed", "revoked", "expired", "login")


@pytest.fixture(scope="module")
def api(server_dsn: str, template_database: str) -> Iterator[Api]:
    with copy_of(server_dsn, template_database) as dsn, serving(dsn) as api:
        api.secrets |= {
            "wrong": TOKEN_PREFIX + "A" * 43,
            "malformed": "Zm9vOmJhcg==",
            **_spoiled(dsn),
        }
        yield api


def _spoiled(dsn: str) -> dict[str, str]:
    with operator_connection(dsn) as connection:
        tokens, secrets = Tokens(connection), {}
        for name in ("revoked", "expired", "parent"):
            secrets[name] = tokens.add(name, ADMIN, days=1, reason="a test")["secret"]
        tokens.revoke("revoked", "a test")
        holder = tokens.holder(secrets.pop("parent"))
        assert holder is not None
        return {**secrets, "login": tokens.login(holder), "expired": _expired(dsn, secrets)}


def _expired(dsn: str, secrets: dict[str, str]) -> str:
    _age(dsn, "expired")
    return secrets["expired"]


def _age(dsn: str, name: str) -> None:
    """Make a token one whose days are over."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        connection.execute(
            "UPDATE holdfast.access_token SET created_at = created_at - %s, expires_at = now()"
            " - interval '1 second' WHERE name = %s",
            (timedelta(days=2), name),
        )


def test_every_route_has_a_place_in_the_table() -> None:
    described = application(ApiSettings("")).openapi()["paths"]
    routes = {
        (method.upper(), path.removeprefix(V1))
        for path, methods in described.items()
        if path.startswith(V1)
        for method in methods
    }
    assert routes == set(ROUTES)


@pytest.mark.parametrize("who", NOBODY)
def test_who_has_no_valid_token_is_refused_everywhere(api: Api, who: str) -> None:
    before = api.audited()
    for method, path in ROUTES:
        answer = api.ask(method, path, None if who == "none" else who, json={})
        assert answer.status_code == 401, (method, path, answer.text)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert api.audited() == before


@pytest.mark.parametrize("who", list(AccessRole))
def test_role_is_checked_before_anything_is_read(api: Api, who: AccessRole) -> None:
    before, order = api.audited(), list(AccessRole)
    for (method, path), least in ROUTES.items():
        # No body and no real names: whoever may do it is told that the request is none.
        answer = api.ask(method, path.replace("{batch_id}", "1"), who.value)
        if order.index(who) < order.index(least):
            assert answer.status_code == 403, (method, path, answer.text)
            assert f"role {least}" in answer.json()["detail"]
        else:
            assert answer.status_code in (200, 404, 422), (method, path, answer.text)
    assert api.audited() == before


@pytest.mark.parametrize("scheme", ["Basic", "bearer", "BEARER", "Token"])
def test_only_bearer_tokens_count_and_never_those_in_urls(api: Api, scheme: str) -> None:
    secret = api.secrets["admin"]
    answer = api.ask("GET", "/status", None, headers={"Authorization": f"{scheme} {secret}"})
    assert answer.status_code == (200 if scheme.lower() == "bearer" else 401)
    assert api.ask("GET", f"/status?access_token={secret}", None).status_code in (401, 422)
    login = api.secrets["login"]
    for headers in ({"Cookie": f"holdfast={login}"}, {"Authorization": f"{scheme} {login}"}):
        assert api.ask("GET", "/status", None, headers=headers).status_code == 401


def test_read_leaves_its_connection_usable_for_a_change(dsn: str) -> None:
    with serving(dsn, connections=1) as api:
        for method, path in ROUTES:
            if method == "GET":
                api.ask("GET", _with_names(path))
                change = api.ask("POST", "/endpoints/nobody/pause", json={"reason": "a test"})
                assert change.status_code == 404, (path, change.text)


def _with_names(path: str) -> str:
    """Return the address of what is not there, but could be."""
    names = {"key": f"hf_{'0' * 32}", "id": str(UUID(int=0)), "batch_id": "1", "number": "1"}
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    filters = {"/receipts": "?endpoint=x", "/batches": "?stream=x"}
    named = "?name=x" if path.startswith("/subjects/named") else ""
    return re.sub(r"\{\w+\}", "x", path) + filters.get(path, named)


def test_token_that_is_revoked_ends_at_once_with_its_logins(api: Api) -> None:
    made = api.ask(
        "POST",
        "/tokens",
        json={"name": "brief", "role": "operator", "days": 1, "reason": "a shift"},
    )
    assert made.status_code == 201
    api.secrets["brief"] = made.json()["secret"]
    assert api.ask("GET", "/status", "brief").status_code == 200
    with operator_connection(api.dsn) as connection:
        tokens = Tokens(connection)
        holder = tokens.holder(api.secrets["brief"])
        assert holder is not None
        login = tokens.login(holder)
        result = tokens.holder(login)
        assert result is not None
        assert (result.actor, result.is_login) == ("token brief", True)
        ended = api.ask("POST", "/tokens/brief/revoke", json={"reason": "over"})
        assert ended.status_code == 200
        assert tokens.holder(login) is None
    assert api.ask("GET", "/status", "brief").status_code == 401
    assert api.ask("POST", "/tokens/brief/revoke", json={"reason": "again"}).status_code == 404
    assert api.audited()[-3:] == [
        ("token.add", "brief", "token admin", "a shift"),
        ("login", "brief", _me(), "console"),
        ("token.revoke", "brief", "token admin", "over"),
    ]


def test_expired_login_is_deleted_after_a_day(api: Api) -> None:
    with operator_connection(api.dsn) as connection:
        tokens = Tokens(connection)
        holder = _holder(tokens, api.secrets["operator"])
        secret = tokens.login(holder)
        tokens.logout(_holder(tokens, secret))
        assert tokens.holder(secret) is None
        tokens.logout(holder)
        assert tokens.holder(api.secrets["operator"]) == holder, "a token is no login"
        api.rows(
            "UPDATE holdfast.access_token SET created_at = now() - interval '3 days',"
            " expires_at = now() - interval '2 days' WHERE login_of = %s RETURNING id",
            holder.id,
        )
        tokens.login(holder)
    count = api.rows("SELECT id FROM holdfast.access_token WHERE login_of = %s", holder.id)
    assert len(count) == 1


def test_nothing_of_a_token_is_kept_but_its_hash(api: Api) -> None:
    stored = json.dumps(api.rows("SELECT * FROM holdfast.access_token"), default=repr)
    trail = json.dumps(api.rows("SELECT * FROM holdfast.operator_action"), default=repr)
    for secret in api.secrets.values():
        for part in (secret[len(TOKEN_PREFIX) :][:16], secret[-16:]):
            assert part not in stored + trail
    listed = api.ask("GET", "/tokens").text
    assert LOGIN_PREFIX not in listed
    assert TOKEN_PREFIX not in listed


def test_token_commands_do_what_the_api_does(api: Api) -> None:
    made = holdfast("token", "add", "night", "--role", "viewer", "--days", "2", dsn=api.dsn, code=0)
    api.secrets["night"] = made.stdout.strip()
    assert "not shown again" in made.stderr
    assert api.ask("GET", "/status", "night").status_code == 200
    shown = holdfast("token", "list", "--json", dsn=api.dsn).json["tokens"]
    assert {row["name"]: row["state"] for row in shown}["expired"] == "expired"
    assert [row["name"] for row in shown] == [
        row["name"] for row in api.ask("GET", "/tokens").json()["tokens"]
    ]
    for code, complaint, *arguments in (
        (1, "already", "add", "night", "--role", "viewer"),
        (2, "not a valid token name", "add", "Night Shift", "--role", "viewer"),
        (2, "--reason", "add", "other", "--role", "viewer", "--reason", " "),
        (3, "no valid token", "revoke", "nobody"),
    ):
        done = holdfast("token", *arguments, dsn=api.dsn)
        assert (done.returncode, complaint in done.stderr) == (code, True), done.stderr
    assert holdfast("token", "revoke", "night", dsn=api.dsn).returncode == 0
    assert api.ask("GET", "/status", "night").status_code == 401


def test_empty_list_of_tokens_is_exit_code_3(dsn: str) -> None:
    done = holdfast("token", "list", dsn=dsn)
    assert (done.returncode, "token add" in done.stderr) == (3, True)


def test_description_needs_no_token_and_has_no_secret(api: Api) -> None:
    answer = httpx.get(f"{api.url}/openapi.json", timeout=60)
    assert answer.status_code == 200
    assert "dbname" not in answer.text


def _holder(tokens: Tokens, secret: str) -> Holder:
    holder = tokens.holder(secret)
    assert holder is not None
    return holder


def _me() -> str:
    import getpass

    return getpass.getuser()


CROSS = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}


def _browser(fresh_api: Api) -> httpx.Client:
    return httpx.Client(base_url=fresh_api.url, timeout=60)


def _login(
    browser: httpx.Client, fresh_api: Api, next_path: str = "/", **headers: str
) -> httpx.Response:
    form = {"token": fresh_api.secrets["operator"], "next": next_path}
    return browser.post("/login", data=form, headers=headers)


def _csrf(browser: httpx.Client) -> str:
    import hashlib
    import hmac

    secret = browser.cookies["holdfast"].encode()
    return hmac.digest(secret, b"csrf", hashlib.sha256).hex()


def test_link_leads_over_the_login_to_its_page(fresh_api: Api) -> None:
    with _browser(fresh_api) as browser:
        away = browser.get("/entries?stream=a&subject=m_1")
        assert away.status_code == 303
        assert away.headers["location"] == "/login?next=%2Fentries%3Fstream%3Da%26subject%3Dm_1"
        done = _login(browser, fresh_api, "/entries?stream=a&subject=m_1")
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
    assert ("login", "operator", "token operator", "console") in fresh_api.audited()


def test_fragment_without_login_redirects_the_full_page(fresh_api: Api) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": f"{fresh_api.url}/entries?limit=1"}
    with _browser(fresh_api) as browser:
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
def test_login_redirects_only_to_a_path_of_this_server(fresh_api: Api, path: str) -> None:
    assert safe_path(path) == "/"
    with _browser(fresh_api) as browser:
        done = _login(browser, fresh_api, path)
        assert (done.status_code, done.headers["location"]) == (303, "/")
        assert "x-injected" not in done.headers
        assert "evil" not in browser.get("/login", params={"next": path}).text
    assert safe_path("/entries?q=//a") == "/entries?q=//a"


def test_wrong_token_is_no_login_and_a_login_is_no_token(fresh_api: Api) -> None:
    with _browser(fresh_api) as browser:
        for secret in ("hft_wrong", "", "hfl_x", fresh_api.secrets["operator"][:-1]):
            answer = browser.post("/login", data={"token": secret})
            assert answer.status_code == 401, answer.text
            assert "set-cookie" not in answer.headers
            assert secret == "" or secret not in answer.text
        for cookie in (fresh_api.secrets["operator"], "hfl_guess", "x" * 3000):
            browser.cookies.set("holdfast", cookie)
            assert browser.get("/").status_code == 303
            browser.cookies.clear()
        _login(browser, fresh_api)
        again = browser.post("/login", data={"token": browser.cookies["holdfast"]})
        assert again.status_code == 401


def test_cross_site_requests_cannot_log_in_or_out_or_change_data(fresh_api: Api) -> None:
    with _browser(fresh_api) as browser:
        assert _login(browser, fresh_api, **CROSS).status_code == 403
        assert _login(browser, fresh_api, Origin="null").status_code == 403
        assert "holdfast" not in browser.cookies
        assert _login(browser, fresh_api, Origin=fresh_api.url).status_code == 303
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
        _login(browser, fresh_api)
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
def test_what_is_no_form_is_refused(fresh_api: Api, body: bytes, kind: str, status: int) -> None:
    with _browser(fresh_api) as browser:
        answer = browser.post("/login", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert len(answer.content) < 20_000


def test_login_ends_when_its_token_is_revoked(fresh_api: Api) -> None:
    body = {"name": "shift", "role": "viewer", "days": 1, "reason": "a test"}
    fresh_api.secrets["shift"] = fresh_api.ask("POST", "/tokens", json=body).json()["secret"]
    with _browser(fresh_api) as browser:
        browser.post("/login", data={"token": fresh_api.secrets["shift"]})
        assert browser.get("/").status_code == 200
        fresh_api.ask("POST", "/tokens/shift/revoke", json={"reason": "over"})
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
