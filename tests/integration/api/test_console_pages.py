"""Pages of the console that only show: lists, entries, and what each says."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from holdfast.dispatcher.api.console import verbs
from holdfast.dispatcher.api.console.rendering.filters import NOTHING
from holdfast.dispatcher.api.console.routes import batches, quarantine, subjects
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.console.admin_api import (
    ANSWERED,
    DEAD,
    SET_ASIDE,
    STRANGE,
    Api,
    key_text,
    link_to,
    logged_in,
    text_of,
)

SCREENS = {
    "/batches": "Batches",
    "/batches?stream=payouts": "Batches",
    "/batches/show?stream=payouts&batch_id=0": "Batch 0 of payouts",
    "/batches/diff?stream=payouts&batch_id=0": "Diverged replay",
    "/quarantine": "Quarantine",
    "/quarantine/1": "Row 1",
    "/suppressed": "Suppressed",
    f"/suppressed/{key_text('j_1', 3)}": key_text("j_1", 3),
    "/dead": "Dead letters",
    "/dead/1": "Dead letter 1",
    "/replays": "Replays",
    "/replays/new": "Plan a replay",
    "/endpoints": "Endpoints",
    "/endpoints/payouts": "payouts",
    "/dispatchers": "Dispatchers",
    "/database": "Database",
    "/audit": "Audit",
}
READ = "/batches/show?stream=repeats&batch_id=1"
ROW_TEXT = "what was set aside"


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


@pytest.mark.parametrize(("address", "heading"), SCREENS.items(), ids=[*SCREENS])
def test_viewer_sees_no_changing_form(viewer: httpx.Client, address: str, heading: str) -> None:
    page = viewer.get(address)
    assert page.status_code == 200, text_of(page)
    assert f"<h1>{heading}</h1>" in page.text
    assert page.text.count('method="post"') == 1, "logging out is all that a viewer may do"
    assert "/selected?" not in page.text
    assert 'type="checkbox"' not in page.text


@pytest.mark.parametrize(
    "address", ["/endpoints/payouts/pause", "/dead/selected?id=1&do=redeliver"]
)
def test_question_is_shown_to_a_viewer_without_its_button(
    viewer: httpx.Client, operator: httpx.Client, address: str
) -> None:
    page = viewer.get(address)
    assert page.status_code == 200, text_of(page)
    assert "your role is viewer" in text_of(page)
    assert page.text.count('method="post"') == 1
    assert operator.get(address).text.count('method="post"') == 2


def test_batch_shows_which_records_it_read(viewer: httpx.Client) -> None:
    text = text_of(viewer.get(READ))
    assert "source 0: Kafka, an unknown number of offsets, 1 partition with nothing new" in text
    assert "events 0 90 117 27" in text
    assert f"events 2 {NOTHING} 4 {NOTHING} a partition that is new to the query" in text
    assert "source 1: files or ticks, log entry 0" in text
    assert "no source offsets are stored" in text_of(
        viewer.get("/batches/show?stream=payouts&batch_id=0")
    )


def test_counts_of_a_batch_add_up_and_its_parts_are_linked(viewer: httpx.Client) -> None:
    page = viewer.get("/batches/show?stream=payouts&batch_id=0")
    text = text_of(page)
    assert "5 rows = 2 entries + 0 duplicates + 0 suppressed + 3 quarantined" in text
    assert "A replay diverged" in text
    assert "/quarantine?stream=payouts&amp;reason=malformed" in page.text


def test_operators_can_compare_a_diverged_replay_by_line(
    reading: Api, operator: httpx.Client, viewer: httpx.Client
) -> None:
    before = len(reading.audited())
    first = operator.get("/batches/diff?stream=payouts&batch_id=0")
    [command] = re.findall("<code>holdfast (batch accept [^<]*)</code>", first.text)
    shown = holdfast(*shlex.split(command), "--dry-run", dsn=reading.dsn, code=ExitCode.OK)
    assert "accepted, the job writes" in shown.stdout
    assert "<ins>" not in first.text
    assert len(reading.audited()) == before, "nothing was read"
    asked = link_to(first, "Show the bodies")
    assert asked is not None
    shown = operator.get(asked)
    assert "2 keys differ" in text_of(shown)
    assert "j_3" in shown.text[shown.text.index("<ins>") :]
    assert [each[:3] for each in reading.audited()[before:]] == [
        ("entry.read", "payouts batch 0", "token operator")
    ]
    assert viewer.get(asked).status_code == 403


def test_operators_read_quarantined_rows_and_reading_is_audited(
    reading: Api, operator: httpx.Client, viewer: httpx.Client
) -> None:
    before = len(reading.audited())
    assert ROW_TEXT in SET_ASIDE
    assert ROW_TEXT not in text_of(operator.get("/quarantine/1"))
    assert ROW_TEXT in text_of(operator.get("/quarantine/1?text=shown"))
    refused = viewer.get("/quarantine/1?text=shown")
    assert (refused.status_code, ROW_TEXT in refused.text) == (403, False)
    assert [each[:2] for each in reading.audited()[before:]] == [
        ("quarantine.read", "quarantine 1")
    ]


def test_answer_is_shown_to_asking_operator(operator: httpx.Client, viewer: httpx.Client) -> None:
    for person in (operator, viewer):
        for address in ("/dead", "/dead/1"):
            page = person.get(address)
            assert ANSWERED not in page.text
            assert "answered 400" in text_of(page)
    assert ANSWERED in text_of(operator.get("/dead/1?body=shown"))
    assert viewer.get("/dead/1?body=shown").status_code == 403


def test_dead_letter_says_why_what_waits_and_what_can_be_done(operator: httpx.Client) -> None:
    text = text_of(operator.get("/dead/1?body=shown"))
    for part in (
        "needs a person",
        "It holds its lane: 1 later entry of this subject waits",
        f"holdfast redeliver {key_text(DEAD)} --endpoint payouts",
        "the business action is REPEATED",
        "holdfast dead-letter dismiss 1 --skip",
        '"exposure_minor": 8500000',
    ):
        assert part in text


def test_plan_is_shown_with_kinds_no_ops_and_warnings(reading: Api, viewer: httpx.Client) -> None:
    [row] = reading.rows("SELECT id FROM holdfast.replay WHERE filter ? 'endpoint'")
    page = viewer.get(f"/replays/{row['id'].hex[:8]}")
    text = text_of(page)
    for part in ("Nothing was sent yet", "release 1", "hasten 1", "according to signed receipts"):
        assert part in text
    assert "live traffic" in text
    other = text_of(viewer.get(text_link(viewer.get("/replays"), "once more")))
    assert "entries are in replay" in other
    assert "5 per second" in other


def text_link(page: httpx.Response, words: str) -> str:
    """Return where the row of a list that says these words leads."""
    [row] = [each for each in page.text.split("<tr data-row>") if words in each]
    return row.split('href="')[1].split('"')[0]


def test_endpoint_names_its_secrets_and_shows_none(viewer: httpx.Client) -> None:
    text = text_of(viewer.get("/endpoints/payouts"))
    assert "env:HOLDFAST_SECRET_TEST" in text
    assert "whsec_" not in text
    listed = text_of(viewer.get("/endpoints"))
    assert "paused" in listed
    assert viewer.get("/endpoints/nowhere").status_code == 404


def test_dead_dispatcher_differs_from_none(viewer: httpx.Client) -> None:
    text = text_of(viewer.get("/dispatchers"))
    assert "no heartbeat" in text
    assert "No dispatcher is alive" in text


def test_query_of_another_session_is_shown_to_operators(
    reading: Api, operator: httpx.Client, viewer: httpx.Client
) -> None:
    with psycopg.connect(reading.dsn) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 'a name that is nobodys business'")
        assert "nobodys business" in text_of(operator.get("/database"))
        page = viewer.get("/database")
        assert "nobodys business" not in page.text
        assert str(other.info.backend_pid) in text_of(page)


@pytest.mark.parametrize(
    ("module", "address"),
    [
        (batches, "/batches?stream=test"),
        (verbs, "/dead?which=all"),
        (quarantine, "/quarantine?which=all&stream=payouts"),
        (verbs, "/audit"),
    ],
)
def test_pages_have_every_row_once(
    viewer: httpx.Client, monkeypatch: pytest.MonkeyPatch, module: Any, address: str
) -> None:
    full = _places(viewer.get(address))
    monkeypatch.setattr("holdfast.dispatcher.api.console.frame.screens.ROWS", 2)
    monkeypatch.setattr(module, "ROWS", 2)
    seen: list[str] = []
    further: str | None = address
    while further is not None:
        page = viewer.get(further)
        seen += _places(page)
        further = link_to(page, "Older")
    assert seen == full
    assert seen


def _places(page: httpx.Response) -> list[str]:
    assert page.status_code == 200, text_of(page)
    return [text_of(httpx.Response(200, text=row)) for row in _rows(page.text)]


def _rows(text: str) -> list[str]:
    return [each.split("</tr>")[0] for each in text.split("<tr data-row>")[1:]]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/dead?endpoint=nowhere", "there is no endpoint 'nowhere'"),
        ("/dead?reason=exhausted", "No dead letter matches"),
        ("/dead?which=resolved", "No dead letter is resolved yet"),
        ("/quarantine?stream=nowhere", "no stream is called 'nowhere'"),
        ("/audit?actor=nobody", "No action matches"),
        ("/entries?subject=nobody", "no subject is called 'nobody'"),
        ("/entries?stream=nothing", "no stream is called 'nothing'"),
        ("/entries?type=nothing.at.all", "No entry matches"),
        ("/subjects?prefix=zzz", "No subject matches"),
    ],
)
def test_empty_results_are_explained(viewer: httpx.Client, address: str, message: str) -> None:
    page = viewer.get(address)
    assert page.status_code == 200
    assert message in text_of(page)


@pytest.mark.parametrize(
    "address",
    [
        "/dead?reason=boredom",
        "/dead?which=some",
        "/dead?before=x",
        "/dead?endpoint=a&endpoint=b",
        "/dead/selected?do=dismiss",
        "/dead/selected?do=dismiss&id=one",
        "/dead/selected?do=sing&id=1",
        "/dead/0",
        "/batches?stream=payouts&query_id=x",
        "/batches/show?stream=payouts&batch_id=-1",
        "/replays/xyz",
        "/replays?before=yesterday",
        "/audit?since=tomorrow",
        "/audit?colour=red",
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
def test_address_that_cannot_be_read_is_an_error_page(viewer: httpx.Client, address: str) -> None:
    page = viewer.get(address)
    assert page.status_code == 422
    assert page.headers["content-type"].startswith("text/html")
    assert "Nothing was changed" in text_of(page)


@pytest.mark.parametrize(
    "address", ["/batches?stream=nowhere", "/dead/999", "/quarantine/999", "/replays/00000000"]
)
def test_unknown_object_is_not_found(viewer: httpx.Client, address: str) -> None:
    assert viewer.get(address).status_code == 404


KEY = key_text("m_1")


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


def test_unused_key_is_reported(viewer: httpx.Client) -> None:
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
