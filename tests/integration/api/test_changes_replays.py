"""Replays, reissues, dead letters and the quarantine by the API; a request twice changes once."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.api.routes import replays
from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.console.admin_api import Api, serving
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import GOOD, secret_text
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import set_aside
from tests.support.servers.databases import copy_of

pytestmark = pytest.mark.rest


OPERATOR = "operator"
WHY = {"reason": "a test"}
UNKNOWN = Key.of(["nobody"]).text


class World:
    """An API, a receiver that rejects what m_dead... has, and decisions for it."""

    def __init__(self, api: Api, decisions: Decisions, receiver: WebhookReceiver) -> None:
        self.api, self.receiver, self._decisions = api, receiver, decisions

    def delivered(self, *subjects: str) -> list[str]:
        """Write a decision each and deliver them; returns their keys."""
        rows = [self._decisions.row(subject) for subject in subjects]
        self._decisions.write_rows(rows)
        drain(self.api.dsn)
        return [Key.of(row["key"]).text for row in rows]

    def dead(self, subject: str) -> int:
        """Let a decision of a subject die; returns the number of its dead letter."""
        [key] = self.delivered(subject)
        [row] = self.api.rows(
            "SELECT id FROM holdfast.dead_letter WHERE key = %s", Key.parse(key).digest
        )
        return int(row["id"])

    def since(self, before: int) -> list[tuple[str, str]]:
        """What was audited since, and by whom."""
        return [(action, actor) for action, _, actor, _ in self.api.audited()[before:]]


@pytest.fixture(scope="module")
def world(server_dsn: str, template_database: str) -> Iterator[World]:
    with (
        pytest.MonkeyPatch.context() as patch,
        copy_of(server_dsn, template_database) as dsn,
        serving(dsn, reissue_limit=1) as api,
        webhooks.listening() as receiver,
        Decisions(dsn) as decisions,
    ):
        patch.setenv(SECRET, secret_text())
        receiver.script = lambda seen: answer(400 if seen.subject.startswith("m_dead") else 200)
        with psycopg.connect(dsn, autocommit=True) as db:
            add_endpoint(db, receiver.url)
        yield World(api, decisions, receiver)


def _put(world: World, path: str, values: dict[str, Any], who: str = OPERATOR) -> Any:
    return world.api.ask("PUT", path, who, json=values)


def test_repeated_request_redelivers_keys_once(world: World) -> None:
    [key] = world.delivered("m_again")
    before, path = len(world.api.audited()), f"/redeliveries/{uuid4()}"
    body = {"keys": [key], **WHY}
    first, second = _put(world, path, body), _put(world, path, body)
    assert first.status_code == 200, first.text
    assert [item["kind"] for item in first.json()["items"]] == ["resend"]
    assert second.json()["replay"]["id"] == first.json()["replay"]["id"]
    drain(world.api.dsn)
    third = _put(world, path, body)
    assert third.json()["replay"]["state"] == "applied"
    came = [seen for seen in world.receiver.seen if seen.header("webhook-id") == key]
    assert len(came) == 2, "first, and again once"
    assert world.since(before) == [
        ("replay.plan", f"token {OPERATOR}"),
        ("replay.apply", f"token {OPERATOR}"),
    ]
    other = _put(world, path, {**body, "reason": "another"})
    assert (other.status_code, other.json()["code"]) == (409, "id_in_use")


def test_redelivery_of_nothing_leaves_no_plan_behind(world: World) -> None:
    [key] = world.delivered("m_nothing")
    done = _put(world, f"/redeliveries/{uuid4()}", {"keys": [key], "endpoint": "payouts", **WHY})
    assert done.status_code == 200
    path, body = f"/redeliveries/{uuid4()}", {"keys": [key], **WHY}
    for answered in (_put(world, path, body), _put(world, path, body)):
        assert answered.status_code == 200, answered.text
        assert (answered.json()["replay"], answered.json()["items"]) == (None, [])
        assert "another replay" in answered.json()["nothing"][0]["why"]
    assert not world.api.rows("SELECT FROM holdfast.replay WHERE state = 'planned'")
    unknown = _put(world, f"/redeliveries/{uuid4()}", {"keys": [UNKNOWN], **WHY})
    assert unknown.status_code == 404
    drain(world.api.dsn)


def test_concurrent_requests_plan_and_apply_one_id_once(world: World) -> None:
    world.delivered("m_plan", "m_plan")
    before, id_ = len(world.api.audited()), uuid4()
    body = {"filter": {"subject": "m_plan"}, "rate": 100, **WHY}
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(lambda _: _put(world, f"/replays/{id_}", body), range(4)))
        assert {each.status_code for each in plans} == {200}, plans[0].text
        assert {each.json()["item_count"] for each in plans} == {2}
        apply = {"reason": "looked at it"}
        applied = list(
            pool.map(
                lambda _: world.api.ask("POST", f"/replays/{id_}/apply", OPERATOR, json=apply),
                range(4),
            )
        )
    assert {each.status_code for each in applied} == {200}, applied[0].text
    drain(world.api.dsn)
    came = [seen for seen in world.receiver.seen if seen.subject == "m_plan"]
    assert len(came) == 4
    assert world.api.audited()[before:] == [
        ("replay.plan", f"replay {id_}", f"token {OPERATOR}", "a test"),
        ("replay.apply", f"replay {id_}", f"token {OPERATOR}", "looked at it"),
    ]


def test_outdated_plan_is_refused_and_can_be_cancelled(world: World) -> None:
    world.delivered("m_moved")
    id_ = uuid4()
    assert _put(world, f"/replays/{id_}", {"filter": {"subject": "m_moved"}, **WHY}).is_success
    [key] = world.delivered("m_moved2")
    world.api.rows(
        "UPDATE holdfast.replay SET plan_sha256 = sha256('other') WHERE id = %s RETURNING id", id_
    )
    before = len(world.api.audited())
    refused = world.api.ask("POST", f"/replays/{id_}/apply", OPERATOR, json=WHY)
    assert (refused.status_code, refused.json()["code"]) == (409, "plan_outdated")
    assert world.since(before) == [], "what fails writes no audit row"
    cancelled = world.api.ask("POST", f"/replays/{id_}/cancel", OPERATOR, json=WHY)
    assert cancelled.json()["state"] == "cancelled"
    again = world.api.ask("POST", f"/replays/{id_}/cancel", OPERATOR, json=WHY)
    assert again.status_code == 409
    assert world.since(before) == [("replay.cancel", f"token {OPERATOR}")]
    assert world.api.ask("POST", f"/replays/{uuid4()}/apply", json=WHY).status_code == 404
    assert key


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"first_batch": 1},
        {"stream": "test", "first_batch": 2, "last_batch": 1},
        {"since": "2026-11-02T12:00:00"},
        {"since": 0},
        {"since": "2026-11-03T00:00:00Z", "until": "2026-11-02T00:00:00Z"},
        {"states": ["lost"]},
        {"subject": "nul \x00"},
        {"subject": "x" * 2000},
        {"keys": ["hf_1"]},
        {"keys": []},
        {"endpoints": ["payouts"]},
        {"last_batch": 10**30, "stream": "test"},
    ],
    ids=str,
)
def test_filter_that_cannot_be_used_plans_nothing(world: World, wanted: dict[str, Any]) -> None:
    before = world.api.rows("SELECT id FROM holdfast.replay")
    answered = _put(world, f"/replays/{uuid4()}", {"filter": wanted, **WHY})
    assert answered.status_code == 422, answered.text
    assert world.api.rows("SELECT id FROM holdfast.replay") == before


def test_administrator_applies_plan_beyond_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.delivered("m_many", "m_many")
    monkeypatch.setattr(replays, "ITEMS_ALONE_MAX", 1)
    path = f"/replays/{uuid4()}"
    assert _put(world, path, {"filter": {"subject": "m_many"}, **WHY}).status_code == 200
    refused = world.api.ask("POST", f"{path}/apply", OPERATOR, json=WHY)
    assert (refused.status_code, "administrator" in refused.json()["detail"]) == (403, True)
    assert world.api.ask("POST", f"{path}/apply", "admin", json=WHY).status_code == 200
    drain(world.api.dsn)


def test_repeated_reissue_requests_plan_and_write_once(world: World) -> None:
    [key] = world.delivered("m_new")
    before, path = len(world.api.audited()), f"/reissues/{uuid4()}"
    plans = [_put(world, path, {"keys": [key], **WHY}) for _ in range(2)]
    assert [each.status_code for each in plans] == [200, 200], plans[0].text
    assert [each.json()["needs_approval"] for each in plans] == [False, False]
    with ThreadPoolExecutor(3) as pool:
        applied = list(
            pool.map(lambda _: world.api.ask("POST", f"{path}/apply", OPERATOR, json=WHY), range(3))
        )
    statuses = {each.status_code for each in applied}
    assert 200 in statuses, applied[0].text
    assert statuses <= {200, 409}
    late = world.api.ask("POST", f"{path}/apply", OPERATOR, json=WHY)
    assert (late.status_code, late.json()["reissued"]) == (200, [])
    drain(world.api.dsn)
    came = [seen.header("webhook-id") for seen in world.receiver.seen if seen.subject == "m_new"]
    assert came == [key, Key.of(["reissue/v1", key, "1"]).text]
    assert world.since(before) == [
        ("reissue.plan", f"token {OPERATOR}"),
        ("reissue", f"token {OPERATOR}"),
    ]
    other = _put(world, path, {"keys": [key, UNKNOWN], **WHY})
    assert other.status_code == 409
    replay = world.api.ask("POST", f"/replays{path[9:]}/apply", OPERATOR, json=WHY)
    assert (replay.status_code, replay.json()["code"]) == (409, "wrong_replay_kind")


def test_many_reissues_need_another_administrator(world: World) -> None:
    keys = world.delivered("m_two", "m_twoo")
    path, body = f"/reissues/{uuid4()}", {"keys": keys, **WHY}
    assert _put(world, path, body, "admin").json()["needs_approval"] is True
    early = world.api.ask("POST", f"{path}/apply", OPERATOR, json=WHY)
    assert (early.status_code, early.json()["code"]) == (409, "second_person_required")
    reply = world.api.ask("POST", f"{path}/approve", "admin", json=WHY)
    assert (reply.status_code, "that is you" in reply.json()["detail"]) == (409, True)
    lesser = world.api.ask("POST", f"{path}/approve", OPERATOR, json=WHY)
    assert lesser.status_code == 403
    with acting_as("admin"):
        by_command = holdfast(
            *("replay", "approve", path[10:], "--reason", "me again"), dsn=world.api.dsn
        )
    assert (by_command.returncode, "that is you" in by_command.stderr) == (1, True)

    made = world.api.ask(
        "POST", "/tokens", json={"name": "second", "role": "admin", "days": 1, **WHY}
    )
    world.api.secrets["second"] = made.json()["secret"]
    approved = world.api.ask("POST", f"{path}/approve", "second", json=WHY)
    assert (approved.status_code, approved.json()["approved_by"]) == (200, "token second")
    done = world.api.ask("POST", f"{path}/apply", OPERATOR, json=WHY)
    assert len(done.json()["reissued"]) == 2, done.text
    drain(world.api.dsn)


def test_dead_letter_is_dismissed_once_and_holding_one_needs_skip(world: World) -> None:
    number = world.dead("m_dead_1")
    before, path = len(world.api.audited()), "/dead-letters/dismiss"
    holds = world.api.ask("POST", path, OPERATOR, json={"ids": [number], **WHY})
    assert (holds.status_code, "holds the lane" in holds.json()["detail"]) == (422, True)
    body = {"ids": [number, number], "skip": True, **WHY}
    done = world.api.ask("POST", path, OPERATOR, json=body)
    assert [row["id"] for row in done.json()["dismissed"]] == [number], done.text
    again = world.api.ask("POST", path, OPERATOR, json=body)
    assert (again.status_code, "dismissed already" in again.json()["detail"]) == (404, True)
    other = world.dead("m_dead_2")
    both = world.api.ask("POST", path, OPERATOR, json={**body, "ids": [number, other]})
    assert [row["id"] for row in both.json()["resolved_before"]] == [number]
    missing = world.api.ask("POST", path, OPERATOR, json={**body, "ids": [2**63 - 1]})
    assert missing.status_code == 404
    assert world.since(before) == [("dead.dismiss", f"token {OPERATOR}")] * 2


def test_quarantined_rows_are_requeued_once_or_dismissed(world: World) -> None:
    wrong, empty = GOOD | {"data": GOOD["data"] | {"exposure_minor": 1.5}}, GOOD | {"subject": ""}
    bad, job, shut = set_aside(
        world.api.dsn,
        ("bad_data", json.dumps(wrong)),
        ("malformed", "{"),
        ("bad_subject", json.dumps(empty)),
    )
    before, path = len(world.api.audited()), "/quarantine/requeue"

    def requeue(number: int, row: str | None = None) -> Any:
        body = {"rows": [{"id": number, "row": row}], **WHY}
        return world.api.ask("POST", path, OPERATOR, json=body)

    kept = requeue(bad)
    assert [row["id"] for row in kept.json()["refused"]] == [bad], kept.text
    source = requeue(job)
    assert (source.status_code, source.json()["code"]) == (422, "wrong_destination")
    done = requeue(bad, json.dumps(GOOD))
    assert [row["id"] for row in done.json()["requeued"]] == [bad], done.text
    again = requeue(bad, json.dumps(GOOD))
    assert (again.status_code, again.json()["code"]) == (404, "already_resolved")
    body = {"ids": [shut, bad], **WHY}
    dismissed = world.api.ask("POST", "/quarantine/dismiss", OPERATOR, json=body)
    assert dismissed.json()["dismissed"] == [shut]
    assert [row["resolution"] for row in dismissed.json()["resolved_before"]] == ["requeued"]
    assert world.since(before) == [
        ("quarantine.requeue", f"token {OPERATOR}"),
        ("quarantine.dismiss", f"token {OPERATOR}"),
    ]
