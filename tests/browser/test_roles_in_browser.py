"""Who may do what at the console, whatever the browser sends."""

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Browser

from holdfast.dispatcher.api.console import routes
from tests.support.console.admin_api import Api
from tests.support.console.browser import KEY, window

IDS = dict.fromkeys(("id", "id_", "replay_id"), "0" * 32)
VALUES = {"key": KEY.text, "number": 1, "name": "payouts", **IDS}
CHANGES = sorted(
    route.path
    for router in routes.ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and "POST" in route.methods
)


@pytest.fixture(scope="module")
def refusals(browser: Browser, looked_at: Api) -> dict[str, tuple[int, str]]:
    """What a viewer is told who sends the form of every change by hand."""
    reply = {}
    before = looked_at.audited()
    with window(browser, looked_at, "viewer") as opened:
        csrf = opened.go("/").locator("input[name=csrf]").first.get_attribute("value")
        assert csrf
        for path in CHANGES:
            form = {"csrf": csrf, "reason": "by hand", "do": "pause", "id": "1"}
            address = path.format(do="pause", action="block", **VALUES)
            answer = opened.context.request.post(address, form=form, max_redirects=0)
            reply[path] = answer.status, answer.text()
    changes = [each for each in looked_at.audited()[len(before) :] if each[0] != "login"]
    assert changes == []
    return reply


@pytest.mark.parametrize("path", CHANGES)
def test_viewer_who_posts_by_hand_is_refused(
    refusals: dict[str, tuple[int, str]], path: str
) -> None:
    status, text = refusals[path]
    assert status == 403
    assert "requires the role" in text
    assert "Nothing was changed" in text
