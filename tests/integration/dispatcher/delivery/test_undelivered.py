"""The oldest undelivered entry is a metric and a need, whatever it waits for."""

import shlex
from typing import Any

import pytest

from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.sink.contract.exits import ExitCode
from tests.integration.dispatcher.delivery.test_web import free_port, scraped, value
from tests.support.dispatch.webhooks import answer
from tests.support.waiting import eventually
from tests.support.world import World

AGE = 1200
OLDER = f"UPDATE holdfast.lane SET head_created_at = head_created_at - interval '{AGE} s'"
METRIC = "holdfast_oldest_undelivered_age_seconds"

STATES = {
    "leased": "UPDATE holdfast.lane SET token = gen_random_uuid(),"
    " lease_until = now() + interval '1 hour'",
    "due": "UPDATE holdfast.lane SET token = NULL, lease_until = NULL, due_at = now()",
    "paused": "UPDATE holdfast.endpoint SET state = 'paused'",
    "stopped": "UPDATE holdfast.lane SET due_at = NULL",
}


def undelivered(dsn: str, **options: int) -> list[dict[str, Any]]:
    with Overview.connect(dsn) as store:
        return [need for need in store.needs(**options) if need["kind"] == "undelivered"]


def test_merchant_in_retries_is_a_metric_and_a_need(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[7200])
    world.receiver.script = lambda _seen: answer(503)
    world.write("m_1")
    port = free_port()
    with world.dispatching("--listen", f"127.0.0.1:{port}"):
        eventually(lambda: [each.attempt for each in world.lanes().values()] == [1])
        world.db.execute(OLDER)
        eventually(lambda: (value(scraped(port), METRIC, endpoint="payouts") or 0) > AGE, 60)
        assert value(scraped(port), "holdfast_oldest_due_age_seconds", endpoint="payouts") == 0
        status = world.holdfast("status", "--json", code=ExitCode.DEGRADED)
        [need] = status.json["needs"]
        assert (need["kind"], need["count"]) == ("undelivered", 1)
        assert "m_1" in need["sentence"]
        assert "HTTP 503" in need["sentence"]
        _, *command = shlex.split(need["command"])
        assert "HTTP 503" in world.holdfast(*command).stdout
        monkeypatch.setenv("HOLDFAST_UNDELIVERED_MINUTES", "30")
        assert world.holdfast("status").returncode == ExitCode.OK


def test_undelivered_entry_counts_in_every_state(world: World) -> None:
    world.add_endpoint("http://127.0.0.1:9/")
    world.write("m_1")
    with Overview.connect(world.dsn) as store:
        world.db.execute("UPDATE holdfast.batch SET written_at = written_at - interval '1 hour'")
        assert store.overview(1)["oldest_undelivered_age_seconds"] > AGE, "a batch to route"
    world.db.execute("UPDATE holdfast.batch SET routed_at = now()")
    world.db.execute(
        "INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence,"
        " priority, due_at, head_created_at)"
        " SELECT p.id, s.id, 0, 1, 0, now() + interval '1 hour', now()"
        " FROM holdfast.endpoint p, holdfast.subject s"
    )
    world.db.execute(
        "INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,"
        " reason, detail, attempts) SELECT endpoint_id, subject_id, 1, gen_random_uuid(), now(),"
        " 'rejected', 'd', 1 FROM holdfast.lane"
    )
    assert undelivered(world.dsn) == []
    world.db.execute(OLDER)
    for state, change in STATES.items():
        world.db.execute(change)
        [need] = undelivered(world.dsn)
        assert need["count"] == 1, state
        assert "no attempt is recorded" in need["sentence"], state
        assert undelivered(world.dsn, undelivered_minutes=AGE // 60 + 5) == [], state
    world.db.execute("UPDATE holdfast.endpoint SET state = 'disabled'")
    assert undelivered(world.dsn) == []
    world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
    world.db.execute("UPDATE holdfast.lane SET delivered_sequence = last_sequence")
    assert undelivered(world.dsn) == []
