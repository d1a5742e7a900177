"""Entries and subjects in the console: found by filters, explained, shown to those who may."""

from collections.abc import Iterator

import httpx
import pytest

from holdfast.dispatcher.api.console.routes import subjects
from holdfast.sink.contract.key import Key
from tests.support.console.admin_api import (
    ANSWERED,
    DEAD,
    STRANGE,
    Api,
    key_text,
    link_to,
    logged_in,
    text_of,
)

KEY = key_text("m_1")


@pytest.fixture(scope="module")
def viewer(reading: Api) -> Iterator[httpx.Client]:
    """A viewer's browser."""
    with logged_in(reading, "viewer") as browser:
        yield browser


@pytest.fixture(scope="module")
def operator(reading: Api) -> Iterator[httpx.Client]:
    """An operator's browser."""
    with logged_in(reading, "operator") as browser:
        yield browser


def _keys(api: Api) -> set[str]:
    return {Key(row["key"]).text for row in api.rows("SELECT key FROM holdfast.entry")}


def _shown(page: httpx.Response, among: set[str]) -> list[str]:
    return [key for key in among if f'href="/entries/{key}"' in page.text]


def test_pages_of_entries_have_every_entry_once(
    reading: Api, viewer: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.dispatcher.api.console.verbs.ROWS", 3)
    keys, seen, address = _keys(reading), [], "/entries"
    for _ in keys:
        page = viewer.get(address)
        seen += _shown(page, keys)
        if (older := link_to(page, "Older")) is None:
            break
        address = older
    assert sorted(seen) == sorted(keys)
    assert link_to(page, "Newest") == "/entries"


@pytest.mark.parametrize(
    ("query", "subject"),
    [
        ("subject=m_1", "m_1"),
        ("stream=test&batch=1&subject=m_dead", DEAD),
        ("type=payout_hold.block&since=2020-01-01T00:00:00Z&until=2100-01-01T00:00:00Z", DEAD),
    ],
)
def test_address_filters_stay_in_the_form(viewer: httpx.Client, query: str, subject: str) -> None:
    page = viewer.get(f"/entries?{query}")
    assert page.status_code == 200
    assert f">{subject}</a>" in page.text
    for name, value in (each.split("=") for each in query.split("&")):
        assert f'name="{name}" value="{value}"' in page.text
    others = {"m_2", "m_0", "j_1"} if "subject" in query else set()
    assert not [other for other in others if f">{other}</a>" in page.text]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/entries?subject=nobody", "no subject is called 'nobody'"),
        ("/entries?stream=nothing", "no stream is called 'nothing'"),
        ("/entries?type=nothing.at.all", "No entry matches"),
        ("/subjects?prefix=zzz", "No subject matches"),
    ],
)
def test_nothing_that_matches_is_said(viewer: httpx.Client, address: str, message: str) -> None:
    page = viewer.get(address)
    assert page.status_code == 200
    assert message in text_of(page)


@pytest.mark.parametrize(
    "address",
    [
        "/entries?since=tomorrow",
        "/entries?batch=-1&stream=test",
        "/entries?batch=1",
        "/entries?before=x",
        "/entries?subjcet=m_1",
        "/entries?subject=a&subject=b",
        "/entries/hf_short",
        "/subjects?held=somehow",
        "/?minutes=0",
        "/?minutes=lots",
    ],
)
def test_filter_that_cannot_be_read_is_an_error_page(viewer: httpx.Client, address: str) -> None:
    page = viewer.get(address)
    assert page.status_code == 422
    assert page.headers["content-type"].startswith("text/html")
    assert "Nothing was changed" in text_of(page)


def test_entry_page_shows_its_state_cause_and_history(operator: httpx.Client) -> None:
    text = text_of(operator.get(f"/entries/{key_text(DEAD)}"))
    assert "needs a person" in text
    assert "rejected after 1 attempt" in text
    assert f"holdfast redeliver {key_text(DEAD)}" in text
    for step in ("decided", "written", "routed", "attempt 1: rejected"):
        assert step in text
    assert text_of(operator.get(f"/entries/{KEY}")).count("receipt") >= 1


def test_body_and_answers_are_for_operators(viewer: httpx.Client, operator: httpx.Client) -> None:
    address = f"/entries/{key_text(DEAD)}"
    shown, withheld = (text_of(operator.get(f"{address}?body=shown")), text_of(viewer.get(address)))
    for part in ('"exposure_minor": 8500000', "The request as curl", "Redeliver"):
        assert part in shown
        assert part not in withheld
    assert ANSWERED in shown
    assert ANSWERED not in withheld
    assert "The body is shown to operators" in withheld
    assert viewer.get(f"{address}/curl").status_code == 403


def test_copied_request_has_neither_signature_nor_time(operator: httpx.Client) -> None:
    text = text_of(operator.get(f"/entries/{KEY}/curl?body=shown"))
    assert "curl --request POST" in text
    assert f"webhook-id: {KEY}" in text
    assert "webhook-signature: v1,REDACTED" in text
    assert "webhook-timestamp: REDACTED" in text


def test_key_that_was_never_used_is_told(viewer: httpx.Client) -> None:
    page = viewer.get(f"/entries/hf_{'0' * 32}")
    assert page.status_code == 404
    assert "unknown" in text_of(page)


@pytest.mark.parametrize(
    ("sought", "path"),
    [
        (KEY, f"/entries/{KEY}"),
        ("m_1", "/subjects/show"),
        (STRANGE, "/subjects/show"),
        ("m_1#1", f"/entries/{KEY}"),
        (" m_1  1 ", f"/entries/{KEY}"),
        ("m_1#99", "/subjects"),
        ("m_", "/subjects"),
        ("", "/entries"),
    ],
)
def test_search_goes_where_the_text_leads(viewer: httpx.Client, sought: str, path: str) -> None:
    page = viewer.get("/search", params={"q": sought}, follow_redirects=True)
    assert page.status_code == 200
    assert page.url.path == path


def test_subject_shows_its_lane_its_head_and_its_entries(viewer: httpx.Client) -> None:
    page = viewer.get("/subjects/show", params={"name": DEAD})
    text = text_of(page)
    assert "stopped" in text
    assert "dead letter" in text
    assert f'href="/entries/{key_text(DEAD)}"' in page.text
    assert f'href="/entries/{key_text(DEAD, 2)}"' in page.text
    assert viewer.get("/subjects/show", params={"name": "nobody"}).status_code == 404


def test_pages_of_subjects_have_every_subject_once(
    reading: Api, viewer: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects, "ROWS", 2)
    names = [row["name"] for row in reading.rows("SELECT name FROM holdfast.subject")]
    seen, address = 0, "/subjects"
    for _ in names:
        page = viewer.get(address)
        seen += page.text.count("<tr data-row>")
        if (more := link_to(page, "Next")) is None:
            break
        address = more
    assert seen == len(names)


def test_subjects_that_are_held_up_are_found(viewer: httpx.Client) -> None:
    page = viewer.get("/subjects?held=stopped")
    assert f">{DEAD}</a>" in page.text
    assert ">m_1</a>" not in page.text
