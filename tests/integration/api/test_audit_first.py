"""A change whose audit row cannot be written does not happen, whichever it is."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pyarrow as pa
import pytest

from holdfast.dispatcher.api.app import application
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.sink import BatchInput, ReplayDiverged
from holdfast.sink.contract.key import Key
from tests.support.console.admin_api import V1, Api, csrf_of, logged_in, serving
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import BLOCK, REFUSED, RELEASE, decision, secret_text
from tests.support.dispatch.webhooks import answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.servers.databases import copy_of

pytestmark = pytest.mark.rest


WHY = {"reason": "a test"}
PLAN, REISSUE, APPROVED, WAIVED, NEW = (uuid4() for _ in range(5))
OTHER_QUERY = "11111111-2222-3333-4444-555555555555"
FIRST, SECOND, THIRD = (
    {"keys": [Key.of(decision(each, 1, BLOCK)["key"]).text]} for each in ("m_1", "m_2", "m_3")
)
KEY = FIRST["keys"][0]
WAITS = Key.of(decision("j_1")["key"]).text
LOSE = """
    DELETE FROM holdfast.entry
    WHERE sequence = 2 AND subject_id = (SELECT id FROM holdfast.subject WHERE name = %s)
"""
AHEAD = """
    UPDATE holdfast.transition SET last_occurred_at = now() + interval '2 days'
    WHERE subject_id = (SELECT id FROM holdfast.subject WHERE name = %s)
"""
ON_HOLD = """
    UPDATE holdfast.lane SET on_hold_since = now(), on_hold_until = '9999-01-01', on_hold_by = 'a',
        on_hold_reason = 'b'
    WHERE subject_id = (SELECT id FROM holdfast.subject WHERE name = %s)
"""
OVERTAKEN = decision("j_2", 3, RELEASE)
BEHIND = """
    UPDATE holdfast.transition SET last_occurred_at = last_occurred_at - interval '2 hours'
    WHERE subject_id = (SELECT id FROM holdfast.subject WHERE name = 'j_2')
"""
ROW = """{"subject": "m_9", "type": "payout_hold.block", "key": ["payout-hold/v1", "m_9", "1"],
    "occurred_at": "2026-11-02T12:15:00Z", "data": {"merchant_id": "m_9", "exposure_minor": 1}}"""

API: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("POST", "/batches/{stream}/{batch_id}/accept"): ("", {}),
    ("POST", "/endpoints"): (
        "",
        {"name": "b", "url": "https://b.example/", "secret_refs": [f"env:{SECRET}"]},
    ),
    ("PATCH", "/endpoints/{name}"): ("payouts", {"concurrency": 7}),
    ("POST", "/endpoints/{name}/rotate-secret"): ("payouts", {"to": "env:HOLDFAST_SECRET_OTHER"}),
    ("POST", "/endpoints/{name}/pause"): ("payouts", {}),
    ("POST", "/endpoints/{name}/resume"): ("asleep", {}),
    ("POST", "/endpoints/{name}/disable"): ("payouts", {}),
    ("PUT", "/redeliveries/{replay_id}"): (str(NEW), FIRST),
    ("PUT", "/replays/{replay_id}"): (str(NEW), {"filter": {"endpoint": "payouts"}}),
    ("POST", "/replays/{replay_id}/apply"): (str(PLAN), {}),
    ("POST", "/replays/{replay_id}/cancel"): (str(PLAN), {}),
    ("POST", "/replays/{replay_id}/approve"): (str(WAIVED), {}),
    ("POST", "/proposals/{proposal_id}/approve"): ("", {}),
    ("POST", "/proposals/{proposal_id}/cancel"): ("", {}),
    ("POST", "/entries/{key}/cancel"): (WAITS, {}),
    ("POST", "/decisions/block"): ("", {"subject": "m_new", "stream": "test"}),
    ("POST", "/decisions/release"): ("", {"subject": "m_3", "stream": "test"}),
    ("POST", "/dead-letters/dismiss"): ("", {"ids": [1], "skip": True}),
    ("POST", "/subjects/hold"): ("", {"subject": "m_1", "endpoint": "payouts"}),
    ("POST", "/subjects/resume"): ("", {"subject": "m_2", "endpoint": "payouts"}),
    ("POST", "/subjects/pass"): ("", {"subject": "m_gap", "endpoint": "payouts"}),
    ("POST", "/subjects/repair"): ("", {"subject": "m_ahead", "stream": "payouts"}),
    ("POST", "/suppressed/{key}/write"): (Key.of(OVERTAKEN["key"]).text, {}),
    ("POST", "/quarantine/dismiss"): ("", {"ids": [1]}),
    ("POST", "/quarantine/requeue"): ("", {"rows": [{"id": 1, "row": ROW}]}),
    ("PUT", "/reissues/{replay_id}"): (str(NEW), FIRST),
    ("POST", "/reissues/{replay_id}/apply"): (str(APPROVED), {}),
    ("POST", "/reissues/{replay_id}/approve"): (str(REISSUE), {}),
    ("POST", "/streams/{name}/adopt"): ("test", {"query_id": OTHER_QUERY, "force": True}),
    ("POST", "/streams/{name}/rename"): ("test", {"new_name": "renamed"}),
    ("POST", "/tokens"): ("", {"name": "t", "role": "viewer", "days": 1}),
    ("POST", "/tokens/{name}/revoke"): ("viewer", {}),
}
"""Every change of the API: what stands for the name in its path, and its body beside the reason."""

CONSOLE: dict[str, dict[str, str]] = {
    "/endpoints/payouts/pause": {},
    f"/replays/{PLAN}/apply": {"count": "1"},
    f"/replays/{PLAN}/cancel": {},
    "/replays": {"endpoint": "payouts", "plan": str(NEW)},
    "/dead/dismiss": {"id": "1", "skip": "yes"},
    "/dead/plan": {"id": "1", "plan": str(NEW)},
    "/subjects/hold": {"name": "m_1", "endpoint": "payouts"},
    "/subjects/resume": {"name": "m_2", "endpoint": "payouts"},
    "/subjects/pass": {"name": "m_gap", "endpoint": "payouts"},
    "/quarantine/dismiss": {"id": "1"},
    "/quarantine/requeue": {"id": "2"},
    f"/entries/{KEY}/redeliver": {},
    f"/entries/{WAITS}/cancel": {},
    "/decisions/release": {"name": "m_3", "stream": "test", "id": str(NEW), "seen": "1"},
}


@pytest.fixture(scope="module")
def api(server_dsn: str, template_database: str) -> Iterator[Api]:
    with (
        pytest.MonkeyPatch.context() as patch,
        copy_of(server_dsn, template_database) as dsn,
        serving(dsn, reissue_limit=0) as api,
        webhooks.listening() as receiver,
    ):
        patch.setenv(SECRET, secret_text())
        patch.setenv("HOLDFAST_SECRET_OTHER", secret_text())
        receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
        with psycopg.connect(dsn, autocommit=True) as db, Decisions(dsn) as decisions:
            add_endpoint(db, receiver.url)
            decisions.write("m_1", "m_2", "m_3", "m_dead", *["m_gap"] * 3)
            db.execute(LOSE, ["m_gap"])
            drain(dsn)
            _set_aside(dsn)
            db.execute(AHEAD, ["m_ahead"])
            db.execute(ON_HOLD, ["m_2"])
            db.execute(BEHIND)
            _plan(api)
            add_endpoint(db, receiver.url, name="asleep", state="paused", types=["nothing"])
        yield api


def _set_aside(dsn: str) -> None:
    refused = [{"reason": "bad_type", "detail": "no type", "row": ROW.replace(BLOCK, "?")}]
    table = pa.Table.from_pylist([*refused, {**refused[0], "row": ROW}], REFUSED)
    spark = Driver(dsn, select=lambda rows: BatchInput(rows, table))
    spark.batch(0, decision("j_1"), decision("m_ahead"))
    spark.sink.close()
    spark = Driver(dsn, stream="others")
    spark.batch(0, decision("j_2", 5))
    spark.batch(1, OVERTAKEN)
    with pytest.raises(ReplayDiverged):
        spark.batch(1)
    spark.sink.close()


def _plan(api: Api) -> None:
    for path, body in (
        (f"/replays/{PLAN}", {"filter": {"subject": "m_1"}}),
        (f"/replays/{WAIVED}", {"filter": {"subject": "m_2"}, "outside_window": True}),
        (f"/reissues/{REISSUE}", SECOND),
        (f"/reissues/{APPROVED}", THIRD),
    ):
        planned = api.ask("PUT", path, "operator", json={**body, **WHY})
        assert planned.status_code == 200, planned.text
    agreed = api.ask("POST", f"/reissues/{APPROVED}/approve", json=WHY)
    assert agreed.status_code == 200, agreed.text
    forged = {"id": 2, "row": ROW.replace("m_9", "m_8")}
    proposed = api.ask("POST", "/quarantine/requeue", "operator", json={"rows": [forged], **WHY})
    assert len(proposed.json()["proposed"]) == 1, proposed.text


@pytest.fixture
def mute(api: Api) -> Iterator[Api]:
    """The same, where nobody may add to the audit trail."""
    with psycopg.connect(api.dsn, autocommit=True) as db:
        db.execute("REVOKE INSERT ON holdfast.operator_action FROM holdfast_operator")
        try:
            yield api
        finally:
            db.execute("GRANT INSERT ON holdfast.operator_action TO holdfast_operator")


def _tables(api: Api) -> dict[str, str]:
    """What every table holds, as a hash; of tokens without when they were used last."""
    names = api.rows(
        "SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = 'holdfast'::regnamespace"
        " AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    )
    return {
        row["name"]: api.rows(
            "SELECT md5(coalesce(string_agg(t, E'\\n' ORDER BY t), '')) AS sum FROM (SELECT"
            f" (to_jsonb(x) - 'last_used_at')::text AS t FROM holdfast.{row['name']} x) rows"
        )[0]["sum"]
        for row in names
    }


def _assert_refused(api: Api, answered: httpx.Response, before: dict[str, str]) -> None:
    assert answered.status_code in (409, 422), answered.text
    assert "operator_action" in answered.text, "it came as far as the audit trail"
    after = _tables(api)
    assert {name for name, held in after.items() if held != before[name]} == set()


def test_every_change_of_the_api_is_in_the_table() -> None:
    described = application(ApiSettings("")).openapi()["paths"]
    changes = {
        (method.upper(), path.removeprefix(V1))
        for path, methods in described.items()
        for method in methods
        if method != "get"
    }
    assert changes == set(API)


@pytest.mark.parametrize(("method", "path"), API, ids=lambda part: str(part).strip("/"))
def test_change_that_cannot_be_audited_is_not_made(mute: Api, method: str, path: str) -> None:
    name, body = API[method, path]
    before = _tables(mute)
    [proposal] = mute.rows("SELECT id::text FROM holdfast.proposal")
    for placeholder in ("{name}", "{replay_id}", "{key}"):
        path = path.replace(placeholder, name)
    path = path.replace("{proposal_id}", proposal["id"])
    path = path.replace("{stream}/{batch_id}", "others/1")
    _assert_refused(mute, mute.ask(method, path, json={**body, **WHY}), before)


def test_console_change_without_audit_is_not_made(api: Api, mute: Api) -> None:
    with psycopg.connect(api.dsn, autocommit=True) as db:
        db.execute("GRANT INSERT ON holdfast.operator_action TO holdfast_operator")
        with logged_in(api) as browser:
            db.execute("REVOKE INSERT ON holdfast.operator_action FROM holdfast_operator")
            csrf, before = csrf_of(browser.get("/")), _tables(mute)
            for address, fields in CONSOLE.items():
                _assert_refused(
                    mute, browser.post(address, data={**fields, **WHY, "csrf": csrf}), before
                )
            again = browser.post("/login", data={"token": api.secrets["admin"]})
            assert "set-cookie" not in again.headers, "a login is on record too, or is none"
            for look in (f"/entries/{KEY}", "/dead/1"):
                shown = browser.get(f"{look}?body=shown")
                assert (shown.status_code, "exposure_minor" in shown.text) == (409, False), look
            _assert_refused(mute, mute.ask("GET", f"/entries/{KEY}?body=true"), before)
