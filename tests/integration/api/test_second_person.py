"""By the API: what needs a second person, and who is one."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.console.admin_api import Api, csrf_of, logged_in, serving, text_of
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import BLOCK, GOOD, RELEASE, decision, secret_text
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver, set_aside
from tests.support.servers.databases import copy_of

pytestmark = pytest.mark.rest

WHY = {"reason": "a test"}
ENTRIES = "SELECT count(*) AS n FROM holdfast.entry"


@pytest.fixture
def api(server_dsn: str, template_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with (
        copy_of(server_dsn, template_database) as dsn,
        serving(dsn, reissue_limit=1) as api,
        webhooks.listening() as receiver,
    ):
        monkeypatch.setenv(SECRET, secret_text())
        with psycopg.connect(dsn, autocommit=True) as db:
            add_endpoint(db, receiver.url)
        yield api


def _delivered(api: Api, count: int) -> list[str]:
    with Decisions(api.dsn) as decisions:
        rows = [decisions.row(f"m_{number}") for number in range(count)]
        decisions.write_rows(rows)
    drain(api.dsn)
    return [Key.of(row["key"]).text for row in rows]


def set_aside_good(api: Api) -> int:
    return set_aside(api.dsn, ("bad_data", json.dumps(GOOD)))[-1]


def _token(api: Api, name: str, owner: str | None, role: str = "admin") -> httpx.Response:
    body = {"name": name, "role": role, "days": 1, "owner": owner, **WHY}
    made = api.ask("POST", "/tokens", json=body)
    if made.status_code == 201:
        api.secrets[name] = made.json()["secret"]
    return made


def _requeue(api: Api, who: str, number: int, **more: Any) -> httpx.Response:
    body = {"rows": [{"id": number, **more}], **WHY}
    return api.ask("POST", "/quarantine/requeue", who, json=body)


def test_new_decision_needs_two_administrators(api: Api) -> None:
    number = set_aside_good(api)
    forged = json.dumps(GOOD | {"subject": "m_1", "key": ["m_1"]})
    planned = _requeue(api, "operator", number, row=forged)
    assert api.rows(ENTRIES) == [{"n": 0}]
    assert planned.status_code == 200, planned.text
    assert planned.json()["requeued"] == []
    [proposed] = planned.json()["proposed"]
    assert [each["member"] for each in proposed["differs"]] == ["subject", "key"]
    path = f"/proposals/{proposed['proposal']}"
    assert _requeue(api, "operator", number, row=forged).json()["proposed"] == [proposed]
    early = _requeue(api, "admin", number, proposal=proposed["proposal"])
    assert (early.status_code, early.json()["code"]) == (409, "second_person_required")
    assert api.ask("POST", f"{path}/approve", "operator", json=WHY).status_code == 403
    assert _token(api, "operator-2", " Operator ").status_code == 201
    answer = api.ask("POST", f"{path}/approve", "operator-2", json=WHY)
    assert (answer.status_code, answer.json()["code"]) == (409, "approver_is_planner")
    assert api.ask("GET", path, "viewer").status_code == 403
    assert api.ask("GET", path, "operator").json()["detail"]["text"] == forged
    approved = api.ask("POST", f"{path}/approve", "admin", json=WHY)
    assert (approved.status_code, approved.json()["state"]) == (200, "approved"), approved.text

    other = json.dumps(GOOD | {"subject": "m_2"})
    both = _requeue(api, "operator", number, row=other, proposal=proposed["proposal"])
    assert both.status_code == 422
    assert api.rows(ENTRIES) == [{"n": 0}]
    done = _requeue(api, "operator", number, proposal=proposed["proposal"])
    assert [row["id"] for row in done.json()["requeued"]] == [number], done.text
    again = _requeue(api, "operator", number, proposal=proposed["proposal"])
    assert again.status_code == 404
    assert api.rows(ENTRIES) == [{"n": 1}]
    [listed] = api.ask("GET", "/proposals?open=false", "viewer").json()["proposals"]
    assert (listed["state"], listed["applied_by"]) == ("applied", "token operator")


def test_operator_cannot_write_data_of_another_merchant(api: Api) -> None:
    number = set_aside_good(api)
    data = {"merchant_id": "m_1", "action": "release"}
    reply = _requeue(api, "operator", number, row=json.dumps(GOOD | {"data": data}))
    assert reply.status_code == 200, reply.text
    assert api.rows(ENTRIES) == [{"n": 0}]
    [proposed] = reply.json()["proposed"]
    assert proposed["differs"] == [
        {"member": "data.action", "kept": None, "given": '"release"'},
        {"member": "data.exposure_minor", "kept": "1", "given": None},
        {"member": "data.merchant_id", "kept": '"m_9"', "given": '"m_1"'},
    ]


def test_console_and_api_requeue_older_rows_only_with_approval(api: Api) -> None:
    number = set_aside_good(api)
    with Decisions(api.dsn) as decisions:
        later = decision("m_9", 9, RELEASE)
        decisions.write_rows([later])
    key = Key.of(later["key"]).text
    body = {"rows": [{"id": number}], "suppress_repeats": False, **WHY}
    with logged_in(api, "operator") as browser:
        question = browser.get(f"/quarantine/selected?do=requeue&id={number}")
        assert key in text_of(question)
        form = {"csrf": csrf_of(question), "id": number, "keep_repeats": "1", **WHY}
        went = browser.post("/quarantine/requeue", data=form)
        assert went.status_code == 303, text_of(went)
        assert "1 row is proposed" in text_of(browser.get(went.headers["location"]))
    reply = api.ask("POST", "/quarantine/requeue", "operator", json=body).json()
    assert (reply["requeued"], api.rows(ENTRIES)) == ([], [{"n": 1}])
    [proposed] = reply["proposed"]
    assert (proposed["differs"], proposed["overtakes"]["key"]) == ([], key)
    path = f"/proposals/{proposed['proposal']}/approve"
    assert api.ask("POST", path, json=WHY).status_code == 200
    done = _requeue(api, "operator", number, proposal=proposed["proposal"])
    assert [row["id"] for row in done.json()["requeued"]] == [number], done.text


def test_reissue_of_an_older_decision_needs_a_second_person(api: Api) -> None:
    with Decisions(api.dsn) as decisions:
        older, newer = decisions.row("m_1"), decisions.row("m_1", RELEASE)
        decisions.write_rows([older, newer])
    drain(api.dsn)
    old, new = (Key.of(row["key"]).text for row in (older, newer))
    # The first action of the day, so that the limit of a day does not ask for anybody.
    planned = api.ask("PUT", f"/reissues/{uuid4()}", json={"keys": [old], **WHY}).json()
    assert planned["needs_approval"] is True
    assert planned["replay"]["counts"]["overtakes"][old]["key"] == new
    newest = api.ask("PUT", f"/reissues/{uuid4()}", json={"keys": [new], **WHY}).json()
    assert (newest["needs_approval"], newest["replay"]["counts"]["overtakes"]) == (False, {})


def test_console_shows_what_waits_for_a_second_person(api: Api) -> None:
    number = set_aside_good(api)
    row = json.dumps(GOOD | {"subject": "m_1"})
    [proposed] = _requeue(api, "operator", number, row=row).json()["proposed"]
    with logged_in(api, "operator") as browser:
        page = text_of(browser.get(f"/quarantine/{number}"))
    assert f"holdfast proposal approve {proposed['proposal'][:8]}" in page


def test_two_tokens_of_one_person_are_one_person(api: Api) -> None:
    keys = _delivered(api, 4)
    for name, owner in (("alice-1", "alice"), ("alice-2", " ALICE\t"), ("bob", None)):
        assert _token(api, name, owner).status_code == 201
    assert _token(api, "odd", "\u0430lice").status_code == 422  # a Cyrillic letter
    owners = {each["name"]: each["owner"] for each in api.ask("GET", "/tokens").json()["tokens"]}
    assert (owners["alice-1"], owners["alice-2"], owners["bob"]) == ("alice", "alice", "bob")

    plans = [f"/reissues/{uuid4()}" for _ in keys]
    needs = [
        api.ask("PUT", path, who, json={"keys": [key], **WHY}).json()["needs_approval"]
        for path, key, who in zip(
            plans, keys, ("alice-1", "alice-2", "bob", "alice-1"), strict=True
        )
    ]
    assert needs == [False, True, False, True]
    assert api.ask("POST", f"{plans[1]}/approve", "alice-1", json=WHY).status_code == 409
    with acting_as("alice"):
        done = holdfast("replay", "approve", plans[1][10:], "--reason", "x", dsn=api.dsn)
    assert (done.returncode, "that is you" in done.stderr) == (1, True)
    # Who planned it was written down: a token that is somebody else's later changes nothing.
    assert api.ask("POST", "/tokens/alice-1/revoke", json=WHY).status_code == 200
    assert _token(api, "alice-1", "carol").status_code == 201
    assert api.ask("POST", f"{plans[3]}/approve", "alice-2", json=WHY).status_code == 409
    assert api.ask("POST", f"{plans[3]}/approve", "alice-1", json=WHY).status_code == 200


def test_redelivery_of_forgotten_keys_waits_for_an_administrator(api: Api) -> None:
    keys = _delivered(api, 2)
    forget = "UPDATE holdfast.endpoint_pace SET key_window_seconds=0, key_window_seen_at=now()"
    with psycopg.connect(api.dsn, autocommit=True) as db:
        db.execute(forget)
    id_ = uuid4()
    body = {"keys": keys, "outside_window": True, **WHY}
    reply = api.ask("PUT", f"/redeliveries/{id_}", "operator", json=body).json()
    assert (reply["needs_approval"], reply["replay"]["state"]) == (True, "planned")
    refused = api.ask("POST", f"/replays/{id_}/apply", "operator", json=WHY)
    assert (refused.status_code, refused.json()["code"]) == (409, "second_person_required")
    assert api.ask("POST", f"/replays/{id_}/approve", "operator", json=WHY).status_code == 403
    with logged_in(api, "operator") as browser:
        assert "replay approve" in text_of(browser.get(f"/replays/{id_}"))
    approved = api.ask("POST", f"/replays/{id_}/approve", "admin", json=WHY)
    assert approved.json()["approved_by"] == "token admin", approved.text
    done = api.ask("POST", f"/replays/{id_}/apply", "operator", json=WHY)
    assert (done.status_code, done.json()["state"]) == (200, "applying")


def test_silenced_subject_is_repaired_by_two_administrators(api: Api) -> None:
    _delivered(api, 1)
    ahead = "UPDATE holdfast.transition SET last_occurred_at = now() + interval '2 days'"
    with psycopg.connect(api.dsn, autocommit=True) as db:
        db.execute(ahead)
    body = {"subject": "m_0", "stream": "test", **WHY}
    assert api.ask("POST", "/subjects/repair", "operator", json=body).status_code == 403
    planned = api.ask("POST", "/subjects/repair", json=body)
    assert (planned.status_code, planned.json()["applied"]) == (200, False), planned.text
    id_ = planned.json()["proposal"]
    [need] = [
        each
        for each in api.ask("GET", "/status").json()["needs"]
        if each["kind"] == "proposals_waiting"
    ]
    assert need["command"] == "holdfast proposal list"
    with logged_in(api, "viewer") as browser:
        assert need["command"] in text_of(browser.get("/"))
        page = text_of(browser.get("/subjects/show?name=m_0"))
        assert "holdfast subject repair --stream test --reason TEXT m_0" in page
    apply = {"subject": "m_0", "proposal": id_, **WHY}
    assert api.ask("POST", "/subjects/repair", json=apply).status_code == 409
    assert api.ask("POST", f"/proposals/{id_}/approve", json=WHY).status_code == 409
    assert _token(api, "second", "bob").status_code == 201
    agreed = api.ask("POST", f"/proposals/{id_}/approve", "second", json=WHY)
    assert agreed.status_code == 200, agreed.text
    mixed = {**apply, "to_nothing": True}
    assert api.ask("POST", "/subjects/repair", json=mixed).status_code == 422
    done = api.ask("POST", "/subjects/repair", json=apply)
    assert (done.status_code, done.json()["applied"]) == (200, True), done.text
    assert done.json()["after"] == planned.json()["after"]
    assert api.ask("POST", "/subjects/repair", json=body).status_code == 404


def test_overtaken_decision_is_written_by_two_administrators(api: Api) -> None:
    lost, repeated = decision("m_5", 3, RELEASE), decision("m_5", 6)
    spark = Driver(api.dsn)
    spark.batch(0, decision("m_5", 5))
    spark.batch(1, lost, repeated)
    spark.sink.close()
    key = Key.of(lost["key"]).text
    path = f"/suppressed/{key}/write"
    refused = api.ask("POST", path, json=WHY)
    assert refused.status_code == 409, "the state is still later than the decision"
    behind = "UPDATE holdfast.transition SET last_occurred_at = last_occurred_at - interval '2h'"
    with psycopg.connect(api.dsn, autocommit=True) as db:
        db.execute(behind)
    assert api.ask("POST", path, "operator", json=WHY).status_code == 403
    other = f"/suppressed/{Key.of(repeated['key']).text}/write"
    assert api.ask("POST", other, json=WHY).status_code == 409
    assert api.ask("POST", f"/suppressed/hf_{'0' * 32}/write", json=WHY).status_code == 404
    assert api.ask("POST", path, json=WHY).status_code == 409, "a later one was suppressed"
    planned = api.ask("POST", path, json={"despite_later": True, **WHY})
    assert (planned.status_code, planned.json()["written"], planned.json()["later"]) == (
        200,
        False,
        1,
    ), planned.text
    assert planned.json()["newest"]["last_type"] == BLOCK
    command = f"holdfast suppressed write --reason TEXT {key}"
    with logged_in(api, "viewer") as browser:
        assert command in text_of(browser.get(f"/suppressed/{key}"))
        assert command not in text_of(browser.get(other.removesuffix("/write")))

    id_ = planned.json()["proposal"]
    apply = {"proposal": id_, **WHY}
    assert api.ask("POST", path, json=apply).status_code == 409
    assert api.ask("POST", f"/proposals/{id_}/approve", json=WHY).status_code == 409
    assert _token(api, "second", "bob").status_code == 201
    assert api.ask("POST", f"/proposals/{id_}/approve", "second", json=WHY).status_code == 200
    done = api.ask("POST", path, json=apply)
    assert (done.status_code, done.json()["written"]) == (200, True), done.text
    assert api.rows(ENTRIES) == [{"n": 2}]
    assert api.ask("POST", path, json=apply).status_code == 409
    assert api.rows(ENTRIES) == [{"n": 2}]
    shown = api.ask("GET", f"/suppressed/{key}").json()
    assert shown["written_as"] == done.json()["new_key"] == planned.json()["new_key"]
    with logged_in(api, "viewer") as browser:
        page = browser.get(f"/suppressed/{key}")
        assert (command in text_of(page), f"/entries/{shown['written_as']}" in page.text) == (
            False,
            True,
        )
