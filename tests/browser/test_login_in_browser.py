"""Logging in and out with a real browser: where it leads, what it leaves behind, when it ends."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from holdfast.dispatcher.api.console.routes import live
from tests.support.console.admin_api import Api
from tests.support.console.browser import Window, held, path_of, refresh, window
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

FILTERED = "/entries?subject=m_1"


@pytest.fixture
def opened(browser: Browser, looked_at: Api) -> Iterator[Window]:
    """A window in which nobody is logged in."""
    with window(browser, looked_at) as opened:
        yield opened


def _log_in(page: Page, secret: str) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()


def test_link_leads_over_the_login_to_its_page(opened: Window, looked_at: Api) -> None:
    page = opened.go(FILTERED)
    assert path_of(page.url) == "/login"
    _log_in(page, "hft_wrong")
    expect(page.get_by_role("alert")).to_contain_text("this token is unknown, expired or revoked")
    _log_in(page, looked_at.secrets["viewer"])
    expect(page).to_have_url(looked_at.url + FILTERED)
    expect(page.get_by_role("row").filter(has_text="m_1").first).to_be_visible()


@pytest.mark.parametrize(
    "place", ["//evil.example/x", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_login_leads_to_no_other_host(opened: Window, looked_at: Api, place: str) -> None:
    page = opened.go(f"/login?next={quote(place, safe='')}")
    _log_in(page, looked_at.secrets["viewer"])
    expect(page).to_have_url(f"{looked_at.url}/")
    assert not [each for each in opened.asked if "evil" in path_of(each)]


def test_logout_ends_the_session_and_clears_history(opened: Window, looked_at: Api) -> None:
    opened.log_in(looked_at.secrets["viewer"])
    page = opened.go(FILTERED)
    cookies = opened.context.cookies()
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{looked_at.url}/login")
    page.go_back()
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.get_by_role("row")).to_have_count(0)
    opened.context.add_cookies([{**each} for each in cookies])  # type: ignore[typeddict-item]  # as it gave them
    assert path_of(opened.go(FILTERED).url) == "/login", "the cookie is worth nothing any more"


def test_page_that_is_open_ends_with_its_token(
    opened: Window, looked_at: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "TICK_SECONDS", 0.05)
    body = {"name": "shift", "role": "operator", "days": 1, "reason": "a test"}
    secret = looked_at.ask("POST", "/tokens", json=body).json()["secret"]
    opened.log_in(secret)
    page = opened.go("/")
    expect(page.get_by_role("heading", name="Needs a person")).to_be_visible()
    looked_at.ask("POST", "/tokens/shift/revoke", json={"reason": "the shift is over"})
    page.wait_for_url(re.compile("/login"))
    expect(page.get_by_label("Token")).to_be_visible()


def test_session_ending_in_a_refresh_takes_one_navigation(
    opened: Window, looked_at: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lead to the login, and a second navigation would abort the first."""
    monkeypatch.setattr(live, "TICK_SECONDS", 0.05)
    body = {"name": "late-shift", "role": "operator", "days": 1, "reason": "a test"}
    secret = looked_at.ask("POST", "/tokens", json=body).json()["secret"]
    opened.log_in(secret)
    page = opened.go("/")
    refreshes: list[Route] = []
    navigations: list[Route] = []
    left: list[str] = []

    def hold(route: Route) -> None:
        (navigations if route.request.is_navigation_request() else refreshes).append(route)

    def noted(request: Request) -> None:
        if request.is_navigation_request() and request.redirected_from is None:
            left.append(path_of(request.url))

    page.route(f"{looked_at.url}/", hold)
    page.on("request", noted)
    eventually(lambda: refresh(page, refreshes))
    looked_at.ask("POST", "/tokens/late-shift/revoke", json={"reason": "the shift is over"})
    eventually(lambda: held(page, navigations))
    with page.expect_response(lambda answer: answer.status == HTTPStatus.UNAUTHORIZED):
        refreshes[0].continue_()
    navigations[0].continue_()
    expect(page.get_by_label("Token")).to_be_visible()
    assert left == ["/"]
