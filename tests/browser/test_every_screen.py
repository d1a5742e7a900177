"""Every screen of the console, reached by its links: whole, readable, and nobody's markup."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from holdfast.dispatcher.api.console.rendering.filters import link
from tests.support.console.admin_api import Api
from tests.support.console.browser import (
    KEY,
    LOST,
    ROUTES,
    SUBJECT,
    THEMES,
    WITHHELD,
    Visit,
    canary,
    plan_of_one,
    walk,
    window,
)

pytestmark = pytest.mark.rest

PICTURES = "HOLDFAST_TEST_SCREENSHOTS"
"""Names the folder for pictures of every screen; without it none are made."""

NO_PAGES = {"/live", "/search"}
"""What sends events, and what sends a browser on."""

SHOWN_ON = {
    "subject": {"/entries", "/entries/{key}", "/subjects", "/subjects/show", "/dead", "/replays"},
    "lost": {"/subjects/show", "/subjects/pass", "/subjects/hold", "/subjects/resume"},
    "answer": {"/entries/{key}", "/dead/{number}"},
    "detail": {"/quarantine", "/quarantine/{number}"},
    "row": {"/quarantine/{number}"},
    "offsets": {"/batches/show"},
    "then": {"/batches/diff", "/entries"},
    "now": {"/batches/diff", "/batches/accept"},
    "host": {"/", "/dispatchers"},
    "version": {"/", "/dispatchers"},
    "breaker": {"/endpoints/{name}"},
    "paused": {"/", "/endpoints", "/endpoints/{name}", "/audit"},
    "held": {"/subjects/show", "/audit"},
    "reason": {"/replays", "/replays/{id}", "/audit"},
    "actor": {"/replays", "/replays/{id}", "/audit"},
}
"""Where a text that would be markup must be readable as it is, by the place it was put into."""


@pytest.fixture(scope="module")
def visits(browser: Browser, looked_at: Api) -> list[Visit]:
    """The walk of an administrator, who sees all."""
    pictures = Path(os.environ[PICTURES]) if os.environ.get(PICTURES) else None
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    lost = link("/subjects/show", name=LOST)
    begin = ("/", f"/entries/{KEY.text}", "/search?q=m_", plan_of_one(looked_at.dsn), lost)
    with window(browser, looked_at, "admin") as opened:
        return walk(opened, begin, closely=True, pictures=pictures)


@pytest.fixture(scope="module")
def looks(browser: Browser, looked_at: Api) -> list[Visit]:
    """The walk of a viewer."""
    with window(browser, looked_at, "viewer") as opened:
        return walk(opened, ("/", f"/entries/{KEY.text}"), closely=False)


def test_links_lead_to_every_page_and_nowhere_else(visits: list[Visit]) -> None:
    assert [(each.address, each.status) for each in visits if each.status != 200] == []
    assert {each.route for each in visits} >= {each.path for each in ROUTES} - NO_PAGES


def test_page_has_one_heading_a_title_and_names_for_its_controls(visits: list[Visit]) -> None:
    for each in visits:
        (heading,) = each.seen["headings"]
        assert heading.strip(), each.address
        assert each.seen["title"].endswith(" · Holdfast"), each.address
        assert each.seen["unnamed"] == [], each.address


def test_markup_of_strangers_is_drawn_nowhere(visits: list[Visit], looks: list[Visit]) -> None:
    assert [
        (each.address, each.seen["drawn"]) for each in visits + looks if each.seen["drawn"]
    ] == []


@pytest.mark.parametrize(("place", "routes"), SHOWN_ON.items(), ids=SHOWN_ON)
def test_markup_of_strangers_is_read_as_text(
    visits: list[Visit], place: str, routes: set[str]
) -> None:
    text = " ".join(canary(place).split())
    names = {each.route for each in visits if _says(each, text)}
    assert names >= routes


def test_values_of_headers_are_shown_to_nobody(visits: list[Visit], looks: list[Visit]) -> None:
    assert any("x-team" in each.seen["text"] for each in visits)
    assert [each.address for each in visits + looks if WITHHELD in each.seen["text"]] == []


def test_no_page_is_wider_than_its_window_even_at_400_pixels(visits: list[Visit]) -> None:
    wide = [(e.address, e.beyond, e.beyond_narrow) for e in visits if e.beyond or e.beyond_narrow]
    assert wide == []


@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_out_from_its_ground(visits: list[Visit], theme: str) -> None:
    faint = {each.route: each.faint[theme] for each in visits if each.faint.get(theme)}
    assert faint == {}


def test_viewer_is_offered_no_change_and_reads_no_body(looks: list[Visit]) -> None:
    assert [(each.address, each.status) for each in looks if each.status != 200] == []
    assert {form for each in looks for form in each.seen["posts"]} == {"/logout"}
    answer, row = canary("answer"), canary("row")
    assert any(_says(each, SUBJECT) for each in looks)
    assert [each.address for each in looks if _says(each, answer) or _says(each, row)] == []


def _says(visit: Visit, text: str) -> bool:
    # JSON that is shown indented has its own escapes.
    read = " ".join(visit.seen["text"].replace('\\"', '"').split())
    return " ".join(text.split()) in read
