"""What every page of the console has: a login, an escape for strangers, nothing from elsewhere."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest

from holdfast.dispatcher.api.console.routes import live
from holdfast.dispatcher.operators.common import pool as operator_pool
from tests.support.console.admin_api import (
    STRANGE,
    Api,
    csrf_of,
    key_text,
    logged_in,
    serving,
    text_of,
)
from tests.support.dispatch.delivery import live_dispatcher
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import listening
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


CANARY = "<script>alert('m')</script>\"'\u202e"
PAGES = ("/", "/entries", "/subjects", "/login")
INLINE = re.compile(r"<script(?![^>]* src=)|<style| style=|\son\w+=|javascript:", re.IGNORECASE)
LOADED = re.compile(r'(?:src|href|action|hx-get)="([^"]*)"')


@pytest.fixture
def console(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A server on an outbox with one delivered entry, of a subject that would be markup."""
    monkeypatch.setenv(SECRET, secret_text())
    monkeypatch.setattr(operator_pool, "WAIT_SECONDS", 0.5)
    with psycopg.connect(dsn, autocommit=True) as db, listening() as receiver:
        add_endpoint(db, receiver.url)
        with Decisions(dsn) as decisions:
            decisions.write(CANARY)
        drain(dsn)
    with serving(dsn) as api:
        yield api


@pytest.mark.parametrize("path", ["/", "/entries?subject=m_1", "/subjects", "/search?q=x"])
def test_nobody_sees_a_page_before_the_login(reading: Api, path: str) -> None:
    answer = httpx.get(reading.url + path)
    assert answer.status_code == 303
    place = urlsplit(answer.headers["location"])
    assert place.path == "/login"
    assert parse_qs(place.query).get("next", ["/"]) == [path]


def test_pages_are_complete_without_scripts_and_load_only_own_files(reading: Api) -> None:
    with logged_in(reading) as browser:
        paths = (*PAGES, f"/entries/{key_text('m_1')}", "/subjects/show?name=m_1", "/nowhere")
        for page in map(browser.get, paths):
            assert "script-src 'self'" in page.headers["content-security-policy"]
            assert not INLINE.search(page.text), page.url
            assert page.text.count("<h1>") == 1
            assert all(each.startswith(("/", "#")) for each in LOADED.findall(page.text))
            assert not [each for each in LOADED.findall(page.text) if each.startswith("//")]


def test_files_of_pages_are_kept_by_their_hash(reading: Api) -> None:
    page = httpx.get(f"{reading.url}/login")
    files = [each for each in LOADED.findall(page.text) if each.startswith("/static/")]
    assert len(files) == 4
    for each in files:
        answer = httpx.get(reading.url + each)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (
        "immutable" not in httpx.get(f"{reading.url}/static/console.css").headers["cache-control"]
    )
    assert httpx.get(f"{reading.url}/static/..%2fpages.py").status_code == 404


def test_not_found_page_has_the_menu_after_login(reading: Api) -> None:
    with logged_in(reading) as browser:
        page = browser.get("/nowhere")
    assert page.status_code == 404
    assert 'href="/entries"' in page.text
    stranger = httpx.get(f"{reading.url}/nowhere")
    assert stranger.status_code == 404
    assert 'href="/entries"' not in stranger.text


def test_program_gets_problems_and_no_pages(reading: Api) -> None:
    answer = reading.ask("GET", "/nowhere")
    assert answer.headers["content-type"] == "application/problem+json"


def test_text_of_strangers_stays_text(console: Api) -> None:
    with logged_in(console) as browser:
        subject = browser.get("/search", params={"q": CANARY}, follow_redirects=True)
        entry = browser.get("/search", params={"q": f"{CANARY}#1"}, follow_redirects=True)
        answer = browser.get("/entries", params={"subject": CANARY})
        pages = [subject, entry, answer, browser.get("/subjects"), browser.get("/entries")]
        missing = browser.get("/entries", params={"subject": f"{CANARY}x"})
    for page in (*pages, missing):
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "alert(" in text_of(page)
    # Shown as an escape; what a form sends back is what was given.
    assert all("\\u202e" in text_of(page) for page in pages)
    assert f'value="{CANARY[:1].replace("<", "&lt;")}' in answer.text
    assert "\u202e" in answer.text


def test_overview_shows_what_needs_a_person(reading: Api) -> None:
    with logged_in(reading, "viewer") as browser:
        page = browser.get("/")
    text = text_of(page)
    assert "dead letter is open" in text
    assert "holdfast dead-letter list" in text
    assert page.text.count("<svg") >= 4
    assert "there · 2" in text


def test_overview_is_calm_only_while_a_dispatcher_is_alive(world: World) -> None:
    with serving(world.dsn) as api, logged_in(api, "viewer") as browser:
        assert 'class="calm"' not in browser.get("/").text
        assert "no dispatcher is alive" in text_of(browser.get("/"))
        live_dispatcher(world.db)
        assert 'class="calm"' in browser.get("/").text
        assert "No dispatcher is alive" not in text_of(browser.get("/dispatchers"))
        world.db.execute("UPDATE holdfast.dispatcher_instance SET draining = true")
        assert 'class="calm"' not in browser.get("/").text
        assert "No dispatcher is alive" in text_of(browser.get("/dispatchers"))


def test_redelivery_shows_what_happens_then_does_it_once(console: Api) -> None:
    (key,) = (f"hf_{row['key'].hex}" for row in console.rows("SELECT key FROM holdfast.entry"))
    with logged_in(console, "operator") as browser:
        asked = browser.get(f"/entries/{key}/redeliver")
        assert "delivered" in text_of(asked)
        form = {"csrf": csrf_of(asked), "reason": "the receiver lost it"}
        planned = browser.post(f"/entries/{key}/redeliver", data=form)
        assert planned.status_code == 303
        shown = browser.get(planned.headers["location"])
        assert "Send 1 delivery again" in text_of(shown)
        assert "Nothing is sent yet" in text_of(shown)
        assert "Nothing is sent yet" not in text_of(browser.get(planned.headers["location"]))
        assert [row["state"] for row in console.rows("SELECT state FROM holdfast.replay")] == [
            "planned"
        ]
        for _ in range(2):
            done = browser.post(planned.headers["location"], data={"csrf": form["csrf"]})
            assert done.status_code == 303
            assert done.headers["location"].startswith("/replays/")
    assert [row["state"] for row in console.rows("SELECT state FROM holdfast.replay")] == [
        "applying"
    ]
    made = [each for each in console.audited() if each[0].startswith("replay.")]
    assert [each[0] for each in made] == ["replay.plan", "replay.apply"]
    assert {each[2] for each in made} == {"token operator"}


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 403)])
def test_redelivery_needs_the_role_and_the_form(reading: Api, role: str, status: int) -> None:
    key = key_text("m_1")
    with logged_in(reading, role) as browser:
        csrf = csrf_of(browser.get("/entries")) if role == "viewer" else "0" * 64
        answer = browser.post(f"/entries/{key}/redeliver", data={"csrf": csrf, "reason": "because"})
    assert answer.status_code == status
    assert "Nothing was changed" in text_of(answer)


def test_message_to_one_user_is_not_shown_to_another(console: Api) -> None:
    (key,) = (f"hf_{row['key'].hex}" for row in console.rows("SELECT key FROM holdfast.entry"))
    with logged_in(console, "operator") as one, logged_in(console, "viewer") as another:
        form = {"csrf": csrf_of(one.get("/entries")), "reason": "r"}
        one.post(f"/entries/{key}/redeliver", data=form)
        cookie = one.cookies["holdfast_flash"]
        another.cookies.set("holdfast_flash", cookie)
        assert "Planned" not in text_of(another.get("/entries"))
        another.cookies.set("holdfast_flash", "x.y")
        assert another.get("/entries").status_code == 200


def _heard(browser: httpx.Client) -> str:
    answer = browser.get("/live")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("retry: ")
    assert answer.text.endswith("\n\n")
    return answer.text


def test_live_page_hears_change_and_logout(console: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TICK_SECONDS", 0.0)
    with logged_in(console) as browser:
        csrf = csrf_of(browser.get("/"))
        first = _heard(browser)
        assert "event: now" in first
        with Decisions(console.dsn, "another") as decisions:
            decisions.write("m_1")
        assert _heard(browser) != first
        assert browser.post("/logout", data={"csrf": csrf}).status_code == 303
        assert "event: over" in _heard(browser)


def test_database_that_is_away_is_a_page_and_comes_back(console: Api, server_dsn: str) -> None:
    (row,) = console.rows("SELECT current_database() AS name")
    shut = f'ALTER DATABASE "{row["name"]}" ALLOW_CONNECTIONS '
    with psycopg.connect(server_dsn, autocommit=True) as server, logged_in(console) as browser:
        server.execute(f"{shut} false".encode())
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            [row["name"]],
        )
        page = browser.get("/entries")
        assert page.status_code == 503
        assert page.headers["content-type"].startswith("text/html")
        assert "Try again" in page.text
        assert page.headers["retry-after"]
        assert "data: away" in _heard(browser)
        server.execute(f"{shut} true".encode())
        eventually(lambda: browser.get("/entries").status_code == 200)


def test_empty_database_draws_its_empty_states(dsn: str) -> None:
    with serving(dsn) as api, logged_in(api) as browser:
        texts = {path: text_of(browser.get(path)) for path in ("/", "/entries", "/subjects")}
    assert "No endpoint yet" in texts["/"]
    assert "No batch yet" in texts["/"]
    assert "No dispatcher runs" in texts["/"]
    assert "No entry yet" in texts["/entries"]
    assert "No subject yet" in texts["/subjects"]


def test_strange_subject_is_reached_by_its_link(reading: Api) -> None:
    with logged_in(reading, "viewer") as browser:
        page = browser.get("/entries", params={"subject": STRANGE})
        (link,) = set(re.findall(r'class="subject" href="([^"]*)"', page.text))
        shown = browser.get(link.replace("&amp;", "&"))
    assert shown.status_code == 200
    assert shown.url.params["name"] == STRANGE
