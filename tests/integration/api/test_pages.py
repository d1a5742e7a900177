"""Lists of the API: every row once, whatever the page's size; what does not fit is refused."""

from typing import Any

import pytest

from holdfast.dispatcher.operators.entries import store as store_entries
from tests.support.console.admin_api import Api, key_text

KEY = key_text("m_1")

PAGED = (
    ("/entries?", "entries", "before"),
    ("/entries?subject=m_1&", "entries", "before"),
    ("/entries?stream=test&type=payout_hold.block&", "entries", "before"),
    (f"/entries/{KEY}/attempts?", "attempts", "before"),
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
    whole = _page(reading, f"{path}limit=500")
    assert whole[f"next_{further}"] is None
    seen: list[Any] = []
    page = _page(reading, f"{path}limit=2")
    for _ in range(len(whole[rows]) + 1):
        assert len(page[rows]) <= 2
        seen += page[rows]
        if (place := page[f"next_{further}"]) is None:
            break
        page = _page(reading, f"{path}limit=2&{further}={place}")
    assert seen == whole[rows]
    assert seen or "m_1" in path


def test_rare_type_look_is_bounded(reading: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _page(reading, "/entries?limit=500")["entries"]
    monkeypatch.setattr(store_entries, "SCAN_FIRST", 1)
    monkeypatch.setattr(store_entries, "SCAN_MAX", 1)
    for type_, wanted in (("payout_hold.block", whole), ("payout_hold.never", [])):
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


def test_items_of_a_replay_are_paged_too(reading: Api) -> None:
    replay = _page(reading, "/replays")["replays"][-1]["id"]
    whole = _page(reading, f"/replays/{replay}/items")["items"]
    first = _page(reading, f"/replays/{replay}/items?limit=2")
    rest = _page(reading, f"/replays/{replay}/items?limit=500&after={first['next_after']}")
    assert first["items"] + rest["items"] == whole


UNFIT = f"""
/entries?limit=0 /entries?limit=501 /attempts?limit=x /audit?limit= /subjects?limit=501
/quarantine?limit=-1 /dead-letters?limit=1e3 /replays?limit=501 /batches?stream=test&limit=0
/entries?before=1.2 /entries?before=1.2.3.4 /entries?before=-1.2.3 /entries?before=
/entries?before={"9" * 18}.{"9" * 18}.{"9" * 19} /entries/{KEY}/attempts?before=1.x.3
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
/entries/hf_1 /entries/{KEY.upper()} /entries/{KEY}%00 /entries/{KEY}/why?endpoint=%00
/batches /batches?stream=test&query_id=x /batches/test/x /batches/test/-1
/batches/test/1/diff?divergence=0 /batches/test/9223372036854775808 /quarantine/0
/quarantine/x /quarantine/9223372036854775808 /dead-letters/{"9" * 5000}
/dead-letters/1?body=maybe /replays/x /replays/1/items /check?since=2026-11-02
/check?since=2020-11-02T00:00:00Z /receipts?endpoint=payouts&since=2020-11-02T00:00:00Z
/receipts /receipts?endpoint=%00 /check?limit=501 /check?until=2020-11-02T00:00:00Z
""".split()


@pytest.mark.parametrize("path", UNFIT)
def test_what_does_not_fit_is_refused_and_said(reading: Api, path: str) -> None:
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
