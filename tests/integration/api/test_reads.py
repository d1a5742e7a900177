"""Every read has the same answer by command and by route, page by page."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from holdfast.dispatcher.operators.dead_letters.rules import without_answer
from holdfast.dispatcher.operators.entries import store as store_entries
from tests.support.command import holdfast
from tests.support.console.admin_api import ANSWERED, DEAD, SET_ASIDE, STRANGE, Api, key_text, world

KEY, DEAD_KEY, UNUSED = key_text("m_1"), key_text(DEAD), f"hf_{'0' * 32}"
SUPPRESSED_KEY = key_text("j_1", 3)
NAMED = f"name={quote(STRANGE, safe='')}"
ALL = "limit=500"
LIST = ("entry", "list")

MOVING = {
    *("at", "since", "until", "complete_since", "entries_since", "attempts_since"),
    *("oldest_waiting_seconds", "oldest_due_age_seconds", "heartbeat_age_seconds"),
    "oldest_undelivered_age_seconds",
    *("age_seconds", "clock_ahead_seconds", "bytes", "live_rows", "dead_rows", "rows"),
    *("vacuumed_at", "autovacuumed_at", "analyzed_at", "connections", "snapshots", "tables"),
    *("series", "sentence", "drain_seconds", "last_used_at"),
}
"""What is another value, or another order, a moment later."""

SAME = (
    ("/status", ("status",)),
    ("/overview?minutes=5", ("overview", "--minutes", "5")),
    ("/endpoints", ("endpoint", "list")),
    (f"/entries?{ALL}", ("entry", "list", "--limit", "500")),
    (f"/entries?subject={quote(STRANGE, safe='')}", (*LIST, "--subject", STRANGE)),
    ("/entries?stream=payouts&batch=0", (*LIST, "--stream", "payouts", "--batch", "0")),
    ("/entries?limit=3", ("entry", "list", "--limit", "3")),
    (f"/entries/{KEY}?body=true", ("entry", "show", KEY)),
    (f"/entries/{KEY}/why", ("why", KEY)),
    (f"/entries/{DEAD_KEY}/why", ("why", DEAD_KEY)),
    (f"/entries/{KEY}/trace", ("trace", KEY)),
    (f"/entries/{DEAD_KEY}/trace?body=true", ("trace", DEAD_KEY, "--body")),
    (f"/entries/{KEY}/attempts?body=true", ("attempt", "list", KEY)),
    ("/attempts?body=true&limit=4", ("attempt", "list", "--limit", "4")),
    ("/attempts?body=true&outcome=rejected", ("attempt", "list", "--outcome", "rejected")),
    ("/subjects", ("subject", "list")),
    ("/subjects?held=stopped", ("subject", "list", "--held", "stopped")),
    ("/subjects?prefix=m_&limit=2", ("subject", "list", "--prefix", "m_", "--limit", "2")),
    (f"/subjects/named?{NAMED}", ("subject", "show", STRANGE)),
    (f"/subjects/named/why?{NAMED}", ("why", STRANGE)),
    ("/subjects/named/why?name=m_dead&sequence=2", ("why", DEAD, "--sequence", "2")),
    ("/streams", ("stream", "list")),
    ("/streams/payouts", ("stream", "show", "payouts")),
    ("/batches?stream=test&limit=2", ("batch", "list", "test", "--limit", "2")),
    ("/batches/payouts/0", ("batch", "show", "payouts", "0")),
    ("/batches/repeats/1", ("batch", "show", "repeats", "1")),
    ("/batches/payouts/0/diff?body=true", ("batch", "diff", "payouts", "0")),
    ("/quarantine", ("quarantine", "list")),
    ("/quarantine?reason=malformed", ("quarantine", "list", "--reason", "malformed")),
    ("/quarantine/1?body=true", ("quarantine", "show", "1")),
    ("/suppressed", ("suppressed", "list")),
    ("/suppressed?cause=overtaken", ("suppressed", "list", "--cause", "overtaken")),
    (f"/suppressed/{SUPPRESSED_KEY}?body=true", ("suppressed", "show", SUPPRESSED_KEY)),
    ("/dead-letters", ("dead-letter", "list")),
    ("/dead-letters/1?body=true", ("dead-letter", "show", "1")),
    ("/replays", ("replay", "list")),
    ("/dispatchers", ("dispatcher", "list")),
    ("/database", ("database",)),
    ("/triage", ("triage",)),
    ("/check", ("check",)),
    ("/receipts?endpoint=payouts", ("receipts", "--endpoint", "payouts")),
)  # fmt: skip
"""A path, and the command that says the same."""


def found(api: Api, path: str, who: str = "admin") -> dict[str, Any]:
    """What the API answers; it must."""
    answer = api.ask("GET", path, who)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def _told(api: Api, arguments: Sequence[str]) -> Any:
    done = holdfast(*arguments, "--json", dsn=api.dsn)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def _still(value: Any) -> Any:
    """Leave out what moves, what is null, and what lists of the API leave out."""
    if isinstance(value, dict):
        kept = {k: _still(v) for k, v in value.items() if k not in MOVING}
        for name in {"detail", "dead_detail"} & {k for k, v in kept.items() if isinstance(v, str)}:
            kept[name] = without_answer(kept[name])
        return {k: v for k, v in kept.items() if v is not None}
    return [_still(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("path", "arguments"), SAME, ids=[each[0] for each in SAME])
def test_api_shows_what_the_command_shows(
    reading: Api, path: str, arguments: tuple[str, ...]
) -> None:
    reply = _told(reading, arguments)
    result = found(reading, path)
    if path.startswith("/receipts"):
        reply = {k: v for k, v in reply.items() if k in result}
    assert _still(result) == _still(reply)


def test_endpoint_is_shown_with_its_settings_pace_and_backlog(reading: Api) -> None:
    reply = _told(reading, ["endpoint", "show", "payouts"])
    result = found(reading, "/endpoints/payouts")
    assert result.keys() == reply.keys()
    assert _still(result) == _still(reply)


def test_replay_is_shown_with_its_items_and_how_far_it_is(reading: Api) -> None:
    for replay in found(reading, "/replays")["replays"]:
        id_, path = replay["id"], f"/replays/{replay['id']}"
        assert found(reading, path) == _told(reading, ["replay", "show", id_])
        assert _still(found(reading, f"{path}/status")) == _still(
            _told(reading, ["replay", "status", id_])
        )
        reply = _told(reading, ["replay", "show", id_, "--items"])
        items = found(reading, f"{path}/items")
        assert items["items"] == reply["items"]
        assert len(items["items"]) == replay["item_count"] > 0


def test_audit_trail_is_that_of_the_command_page_by_page(reading: Api) -> None:
    page = found(reading, "/audit?action=replay&limit=1")
    older = found(reading, f"/audit?action=replay&limit=1&before={page['next_before']}")
    reply = _told(reading, ["audit", "list", "--action", "replay"])
    assert [*page["actions"], *older["actions"]] == reply["actions"]
    assert older["next_before"] is None


PRIVATE = (
    (f"/entries/{KEY}", "entry.read", KEY, '\\"merchant_id\\":\\"m_1'),
    (f"/entries/{DEAD_KEY}/trace", "entry.read", DEAD_KEY, ANSWERED),
    (f"/entries/{DEAD_KEY}/attempts", "entry.read", DEAD_KEY, ANSWERED),
    ("/attempts", "entry.read", "attempts", ANSWERED),
    ("/batches/payouts/0/diff", "entry.read", "payouts batch 0", '\\"merchant_id\\":\\"j_3'),
    ("/quarantine/1", "quarantine.read", "quarantine 1", "what was set aside"),
    (
        f"/suppressed/{SUPPRESSED_KEY}",
        "suppressed.read",
        SUPPRESSED_KEY,
        '\\"merchant_id\\":\\"j_1',
    ),
    ("/dead-letters/1", "entry.read", DEAD_KEY, ANSWERED),
)
"""A path, how it is noted that somebody read a body there, and what stands in that."""


@pytest.mark.parametrize(("path", "action", "target", "words"), PRIVATE)
def test_bodies_are_for_operators_who_ask_and_are_noted(
    reading: Api, path: str, action: str, target: str, words: str
) -> None:
    def noted() -> list[tuple[str, str, str, str]]:
        return [each for each in reading.audited() if each[:2] == (action, target)]

    before = noted()
    for who in ("viewer", "operator"):
        assert words not in json.dumps(found(reading, path, who))
    refused = reading.ask("GET", f"{path}?body=true", "viewer")
    assert refused.status_code == 403
    assert "operator" in refused.json()["detail"]
    assert noted() == before
    assert words in json.dumps(found(reading, f"{path}?body=true", "operator"))
    assert noted()[len(before) :] == [(action, target, "token operator", "asked for")]


def test_no_list_has_a_body_or_an_answer(reading: Api) -> None:
    paths = ("/entries", "/quarantine", "/dead-letters", "/audit", "/replays", "/subjects")
    explained = (f"/entries/{DEAD_KEY}/why", f"/subjects/named/why?name={DEAD}")
    for path in (*paths, *explained, "/attempts", "/overview", "/endpoints/payouts"):
        text = reading.ask("GET", path, "viewer").text
        assert ANSWERED not in text
        assert SET_ASIDE not in text
        assert "merchant_id" not in text


MISSING = (
    *("/endpoints/none", "/streams/none", "/batches?stream=none", "/batches/test/99"),
    *("/batches/none/0", "/batches/test/1/diff", "/quarantine/999", "/dead-letters/999"),
    *(f"/entries/{UNUSED}", f"/entries/{UNUSED}/why", f"/entries/{UNUSED}/trace"),
    *(f"/entries/{UNUSED}/attempts", f"/entries/{KEY}/why?endpoint=none"),
    *("/entries?subject=none", "/entries?stream=none", "/entries?stream=test&batch=99"),
    *("/subjects/named?name=none", "/subjects/named/why?name=none", "/attempts?endpoint=none"),
    *("/subjects/named/why?name=m_1&sequence=99", "/dead-letters?subject=none"),
    *("/dead-letters?endpoint=none", "/quarantine?stream=none", "/check?stream=none"),
    *("/check?endpoint=none", "/receipts?endpoint=none", "/receipts?endpoint=payouts&subject=none"),
    *(f"/replays/{'0' * 32}", f"/replays/{'0' * 32}/items", f"/replays/{'0' * 32}/status"),
    "/batches?stream=test&query_id=00000000-0000-0000-0000-000000000000",
)


@pytest.mark.parametrize("path", MISSING)
def test_unknown_object_is_an_explained_problem(reading: Api, path: str) -> None:
    answer = reading.ask("GET", path, "viewer")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert len(answer.json()["detail"]) > 20


M_1 = key_text("m_1")

PAGED = (
    ("/entries?", "entries", "before"),
    ("/entries?subject=m_1&", "entries", "before"),
    ("/entries?stream=test&type=payout_hold.block&", "entries", "before"),
    (f"/entries/{M_1}/attempts?", "attempts", "before"),
    ("/attempts?", "attempts", "before"),
    ("/attempts?endpoint=payouts&", "attempts", "before"),
    ("/attempts?outcome=delivered&", "attempts", "before"),
    ("/subjects?", "subjects", "after"),
    ("/subjects?held=any&", "subjects", "after"),
    ("/batches?stream=test&", "batches", "before"),
    ("/quarantine?", "rows", "before"),
    ("/suppressed?", "suppressed", "before"),
    ("/suppressed?subject=j_1&", "suppressed", "before"),
    ("/dead-letters?open=false&", "dead_letters", "before"),
    ("/replays?", "replays", "before"),
    ("/audit?", "actions", "before"),
)


def _page(api: Api, path: str) -> dict[str, Any]:
    answer = api.ask("GET", path, "viewer")
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


@pytest.mark.parametrize(("path", "rows", "further"), PAGED, ids=[each[0] for each in PAGED])
def test_pages_have_every_row_once(reading: Api, path: str, rows: str, further: str) -> None:
    full = _page(reading, f"{path}limit=500")
    assert full[f"next_{further}"] is None
    seen: list[Any] = []
    page = _page(reading, f"{path}limit=2")
    for _ in range(len(full[rows]) + 1):
        assert len(page[rows]) <= 2
        seen += page[rows]
        if (place := page[f"next_{further}"]) is None:
            break
        page = _page(reading, f"{path}limit=2&{further}={place}")
    assert seen == full[rows]
    assert seen or "m_1" in path


def test_rare_type_look_is_bounded(reading: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    full = _page(reading, "/entries?limit=500")["entries"]
    monkeypatch.setattr(store_entries, "SCAN_FIRST", 1)
    monkeypatch.setattr(store_entries, "SCAN_MAX", 1)
    for type_, wanted in (("payout_hold.block", full), ("payout_hold.never", [])):
        seen: list[Any] = []
        page, pages = _page(reading, f"/entries?type={type_}&limit=500"), 1
        while (place := page["next_before"]) is not None and pages < 20:
            seen += page["entries"]
            page, pages = (
                _page(reading, f"/entries?type={type_}&limit=500&before={place}"),
                pages + 1,
            )
        assert seen + page["entries"] == wanted
        assert 2 < pages < 20


def test_full_last_page_of_replays_and_items_has_no_cursor(reading: Api) -> None:
    replays = _page(reading, "/replays")["replays"]
    assert _page(reading, f"/replays?limit={len(replays)}")["next_before"] is None
    path = f"/replays/{replays[-1]['id']}/items"
    count = len(_page(reading, path)["items"])
    assert _page(reading, f"{path}?limit={count}")["next_after"] is None


def test_items_of_a_replay_are_paged_too(reading: Api) -> None:
    replay = _page(reading, "/replays")["replays"][-1]["id"]
    full = _page(reading, f"/replays/{replay}/items")["items"]
    first = _page(reading, f"/replays/{replay}/items?limit=2")
    rest = _page(reading, f"/replays/{replay}/items?limit=500&after={first['next_after']}")
    assert first["items"] + rest["items"] == full


UNFIT = f"""
/entries?limit=0 /entries?limit=501 /attempts?limit=x /audit?limit= /subjects?limit=501
/quarantine?limit=-1 /dead-letters?limit=1e3 /replays?limit=501 /batches?stream=test&limit=0
/entries?before=1.2 /entries?before=1.2.3.4 /entries?before=-1.2.3 /entries?before=
/entries?before={"9" * 18}.{"9" * 18}.{"9" * 19} /entries/{M_1}/attempts?before=1.x.3
/attempts?before=1.2.3 /attempts?before=1.2.3.4.5.6 /attempts?before={"9" * 40}
/attempts?before=9999999999999999.9999999999.1.1.1 /quarantine?before=0 /audit?before=x
/dead-letters?before=9223372036854775808 /replays?before=2026-11-02 /replays?before=5
/entries?since=2026-11-02T12:00:00 /entries?since=tomorrow /entries?since=1700000000
/entries?since=2026-11-02T12:00:00Z&until=2026-11-02T12:00:00Z
/attempts?since=2026-11-03T00:00:00Z&until=2026-11-02T00:00:00Z
/audit?until=0001-01-01T00:00:00Z /entries?since=9999-12-31T23:59:59Z
/entries?since=0001-01-01T00:00:00%2B23:59 /attempts?outcome=nice
/entries?subjekt=m_1 /entries?limit=1&limit=2 /status?x=1 /overview?minutes=0
/overview?minutes=181 /entries?batch=1 /entries?stream=test&query_id={"0" * 32}
/entries?stream=test&batch=-1 /entries?stream=test&batch=9223372036854775808
/entries?subject=%00 /entries?type=a%00b /subjects?prefix=%00 /audit?actor=%00
/subjects/named /subjects/named?name= /subjects/named?name=%00 /subjects?held=x
/subjects/named?name={"x" * 1025} /subjects/named/why?name=m_1&sequence=0
/subjects?after=%00 /streams/NONE /streams/a%00 /endpoints/%00 /endpoints/a%20b
/entries/hf_1 /entries/{M_1.upper()} /entries/{M_1}%00 /entries/{M_1}/why?endpoint=%00
/batches /batches?stream=test&query_id=x /batches/test/x /batches/test/-1
/batches/test/1/diff?divergence=0 /batches/test/9223372036854775808 /quarantine/0
/quarantine/x /quarantine/9223372036854775808 /dead-letters/{"9" * 5000}
/dead-letters/1?body=maybe /replays/x /replays/1/items /check?since=2026-11-02
/check?since=2020-11-02T00:00:00Z /receipts?endpoint=payouts&since=2020-11-02T00:00:00Z
/receipts /receipts?endpoint=%00 /check?limit=501 /check?until=2020-11-02T00:00:00Z
""".split()


@pytest.mark.parametrize("path", UNFIT)
def test_invalid_input_is_refused_and_explained(reading: Api, path: str) -> None:
    answer = reading.ask("GET", path, "viewer")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["status"] == 422


@pytest.mark.parametrize("text", ["%ED%A0%80", "%FF", "%F0%9F%92%A9", "%5Ct", "%E2%80%AE"])
def test_odd_text_finds_nothing_and_breaks_nothing(reading: Api, text: str) -> None:
    for path, status in (
        (f"/entries?subject={text}", 404),
        (f"/subjects/named?name={text}", 404),
        (f"/subjects?prefix={text}", 200),
        (f"/audit?target={text}", 200),
        (f"/endpoints/{text}", 422),
    ):
        assert reading.ask("GET", path, "viewer").status_code == status


IN_DOLLARS = """
    UPDATE holdfast.entry SET body = convert_to(replace(convert_from(body, 'UTF8'),
        '"exposure_minor"', '"currency":"USD","exposure_minor"'), 'UTF8')
"""


def test_money_that_waits_is_for_operators(server_dsn: str, template_database: str) -> None:
    """One merchant alone may wait: the sum is then a part of its body."""
    with world(server_dsn, template_database) as api:
        with psycopg.connect(api.dsn, autocommit=True) as db:
            db.execute(IN_DOLLARS)
        for who, sums in (("viewer", {0}), ("operator", {0, 1})):
            findings = found(api, "/triage", who)["findings"]
            assert {len(each["amounts"]) for each in findings} == sums
