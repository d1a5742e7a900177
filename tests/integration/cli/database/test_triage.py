"""`holdfast triage` beside two receivers that fail differently, and after the job ended."""

from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.webhooks import answer
from tests.support.documents.runbook import decided, rows
from tests.support.waiting import eventually
from tests.support.world import World

HOUR_AGO = "UPDATE holdfast.lane SET head_created_at = head_created_at - interval '1 hour'"
OLD_BATCH = "UPDATE holdfast.batch SET written_at = written_at - interval '1 hour'"


def test_findings_name_cause_subjects_and_money_in_order_of_harm(world: World) -> None:
    for name in ("down", "strict"):
        world.endpoint(name=name, schedule_seconds=[7200])
    world.receiver.script = lambda seen: answer(422 if "strict" in seen.target else 503)
    job = world.driver()
    job.tables(0, rows(decided("m_1", 1, "block"), decided("m_2", 1, "block", currency="EUR")))
    with world.dispatching():
        eventually(lambda: len(world.attempts()) == 4)
        world.db.execute(HOUR_AGO)
        world.db.execute(OLD_BATCH)
        done = world.holdfast("triage", "--json", code=ExitCode.DEGRADED)
        assert [each["kind"] for each in done.json["findings"]] == ["undelivered", "dead_letters"]
        job.sink.close()
        world.closed()
        done = world.holdfast("triage", "--json", code=ExitCode.DEGRADED)
    stopped, late, dead = done.json["findings"]
    assert (stopped["kind"], stopped["where"]) == ("job_stopped", "payouts")
    money = [{"currency": each, "minor": 8_500_000} for each in ("EUR", "USD")]
    for finding, where, cause in (
        (late, "down", "attempt 1 ended failed (HTTP 503)"),
        (dead, "strict", "the newest: answered 422"),
    ):
        assert (finding["where"], finding["cause"]) == (where, cause)
        assert (finding["subjects"], finding["amounts"]) == (2, money)
        assert finding["since"] is not None
    shown = world.holdfast("triage", code=ExitCode.DEGRADED).stdout
    assert "8,500,000 EUR, 8,500,000 USD in minor units" in shown
    for finding in (stopped, late, dead):
        assert finding["command"] in shown
        assert f"deploy/runbook/{finding['page']}.md" in shown


def test_healthy_database_has_no_finding(world: World) -> None:
    world.endpoint()
    world.write("m_1")
    with world.dispatching():
        eventually(lambda: len(world.attempts()) == 1)
        done = world.holdfast("triage", "--json", code=ExitCode.OK)
    assert done.json["findings"] == []
