"""`holdfast replay`: planned, looked at, applied, watched, cancelled."""

import signal
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.world import World

pytestmark = pytest.mark.rest


AUDIT = "SELECT action, target, reason FROM holdfast.operator_action ORDER BY id"


@pytest.fixture
def receiver(receiver: WebhookReceiver) -> WebhookReceiver:
    """Rejects what m_dead has, and takes everything else."""
    receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
    return receiver


@pytest.fixture
def sent(dsn: str, db: psycopg.Connection, receiver: WebhookReceiver) -> str:
    """A database with 4 delivered entries and a dead one that holds another."""
    add_endpoint(db, receiver.url)
    with Decisions(dsn) as decisions:
        decisions.write("m_1", "m_1", "m_2", "m_2", "m_dead", "m_dead")
    drain(dsn)
    return dsn


def _json(dsn: str, *arguments: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    return holdfast("replay", *arguments, "--json", dsn=dsn, code=code).json


def _plan(dsn: str, *arguments: str) -> dict[str, Any]:
    return _json(dsn, "plan", *arguments, "--reason", "asked")


def test_plan_says_what_would_happen_and_sends_nothing(world: World, sent: str) -> None:
    before = len(world.receiver.seen)
    row = _plan(sent, "--endpoint", "payouts", "--rate", "2")
    assert row["counts"]["kinds"] == {"nothing": 1, "release": 1, "resend": 4}
    assert row["counts"]["drain_seconds"] == pytest.approx(2.5)
    drain(sent)
    assert len(world.receiver.seen) == before
    short = row["id"][:8]
    assert row["apply"] == f"holdfast replay apply {short}"

    text = holdfast("replay", "show", short, "--items", dsn=sent).stdout
    for words in (
        *("planned", "endpoint payouts", "same key and bytes", "at least 2.5 s, at 2 per second"),
        *("holding its lane", "oldest first", f"holdfast replay apply {short}", "m_dead", "resend"),
    ):
        assert words in text, text
    again = holdfast("replay", "plan", "--subject", "m_1", "--reason", "asked", dsn=sent).stdout
    assert f"are in replay {short} too (planned" in again, again
    page = _json(sent, "show", short, "--items", "--limit", "3")
    rest = _json(sent, "show", short, "--items", "--after", str(page["next_after"]))
    places = [each["place"] for each in page["items"] + rest["items"]]
    assert places == [1, 2, 3, 4, 5]
    assert [row["state"] for row in _json(sent, "list")["replays"]] == ["planned"] * 2
    assert "replay" in holdfast("replay", "list", dsn=sent).stdout.lower()
    assert [row[0] for row in world.db.execute(AUDIT)] == ["replay.plan"] * 2


def test_replay_is_applied_watched_and_done(sent: str, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: answer()
    bodies = {seen.header("webhook-id"): seen.body for seen in receiver.seen}
    before = len(receiver.seen)
    short = _plan(sent, "--endpoint", "payouts", "--state", "delivered", "--state", "dead")["id"][
        :8
    ]
    begun = holdfast("replay", "apply", short, dsn=sent, code=ExitCode.OK)
    assert "applying: 5 items" in begun.stdout
    assert _json(sent, "apply", short)["state"] == "applying"
    assert "5 wait" in holdfast("replay", "status", short, dsn=sent).stdout
    drain(sent)
    done = _json(sent, "status", short, "--wait")
    assert (done["state"], done["progress"]["settled"]) == ("applied", 5)
    assert (done["progress"]["delivered"], done["progress"]["released"]) == (4, 1)
    came = receiver.seen[before:]
    assert sorted(seen.subject for seen in came) == ["m_1"] * 2 + ["m_2"] * 2 + ["m_dead"] * 2
    assert all(bodies.get(seen.header("webhook-id"), seen.body) == seen.body for seen in came)
    refused = holdfast("replay", "apply", short, dsn=sent, code=ExitCode.FAILED)
    assert "is applied" in refused.stderr


def test_failed_items_are_named_with_exit_code_4(world: World, sent: str) -> None:
    world.receiver.script = lambda seen: answer(400 if seen.subject == "m_2" else 200)
    short = _plan(sent, "--state", "delivered")["id"][:8]
    _json(sent, "apply", short)
    drain(sent)
    done = holdfast("replay", "status", short, dsn=sent, code=ExitCode.DEGRADED)
    assert "2 delivered" in done.stdout
    assert "2 failed" in done.stdout
    items = _json(sent, "show", short, "--items")["items"]
    assert {each["outcome"] for each in items if each["subject"] == "m_2"} == {"rejected"}


def test_outdated_plan_is_refused_and_cancelled_sends_nothing(world: World, sent: str) -> None:
    stale = _plan(sent, "--state", "dead")["id"][:8]
    [number] = world.db.execute("SELECT id FROM holdfast.dead_letter").fetchone() or (0,)
    holdfast("dead-letter", "dismiss", str(number), "--skip", "--reason", "moot", dsn=sent)
    drain(sent)
    refused = holdfast("replay", "apply", stale, dsn=sent, code=ExitCode.FAILED)
    assert "Nothing was sent" in refused.stderr

    before = len(world.receiver.seen)
    short = _plan(sent, "--state", "delivered")["id"][:8]
    _json(sent, "apply", short)
    cancelled = holdfast("replay", "cancel", short, "--reason", "mistake", dsn=sent)
    assert "cancelled" in cancelled.stdout
    drain(sent)
    assert len(world.receiver.seen) == before
    assert holdfast("replay", "status", short, "--wait", dsn=sent).returncode == ExitCode.FAILED
    assert [row[2] for row in world.db.execute(AUDIT)][-1] == "mistake"


def test_forgotten_keys_are_sent_only_on_demand(world: World, sent: str) -> None:
    world.db.execute(
        "UPDATE holdfast.endpoint_pace SET key_window_seconds = 0, key_window_seen_at = now()"
    )
    plan = ("--subject", "m_1", "--state", "delivered")
    planned = holdfast("replay", "plan", *plan, "--reason", "asked", dsn=sent).stdout
    assert "2 entries were first attempted longer ago" in planned, planned
    short = planned.partition("replay apply ")[2][:8]
    refused = holdfast("replay", "apply", short, dsn=sent)
    assert (refused.returncode, "Nothing was sent" in refused.stderr) == (ExitCode.FAILED, True)
    before = len(world.receiver.seen)
    agreed = _plan(sent, *plan, "--outside-window")["id"][:8]
    _json(sent, "apply", agreed)
    drain(sent)
    assert [seen.subject for seen in world.receiver.seen[before:]] == ["m_1"] * 2


def test_applying_says_what_keeps_it_from_being_sent(sent: str) -> None:
    short = _plan(sent, "--subject", "m_1")["id"][:8]
    holdfast("endpoint", "pause", "payouts", "--reason", "maintenance", dsn=sent)
    done = holdfast("replay", "apply", short, dsn=sent, code=ExitCode.OK)
    assert "note: endpoint payouts is paused (maintenance): nothing is sent there" in done.stdout
    assert "note: no dispatcher is running" in done.stdout


def test_signal_ends_waiting_and_the_replay_continues(world: World, sent: str) -> None:
    short = _plan(sent, "--subject", "m_1")["id"][:8]
    command = [
        sys.executable,
        "-m",
        "holdfast.dispatcher.cli.main",
        "replay",
        "apply",
        short,
        "--wait",
    ]
    with subprocess.Popen([*command, "--dsn", sent], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("note: no dispatcher is running")
            process.send_signal(signal.SIGINT)
            assert f"continues: holdfast replay status {short}" in process.stderr.read()
            assert process.wait(20) == ExitCode.OK
        finally:
            process.kill()
    before = len(world.receiver.seen)
    drain(sent)
    assert len(world.receiver.seen) == before + 2
    assert _json(sent, "status", short)["state"] == "applied"


def test_no_match_exits_3_and_nonsense_2(sent: str) -> None:
    why = ("--reason", "asked")
    key = Key.of(["x"]).text
    for code, complaint, *arguments in (
        (ExitCode.USAGE, "Examples:", "plan", *why),
        (ExitCode.USAGE, "holdfast replay plan --endpoint", "plan", *why),
        (ExitCode.USAGE, "Nothing was planned", "plan", "--batch", "1", *why),
        (ExitCode.USAGE, "120..125", "plan", "--stream", "test", "--batch", "1-2", *why),
        (ExitCode.USAGE, "after the last", "plan", "--stream", "test", "--batch", "2..1", *why),
        (ExitCode.USAGE, "with a zone", "plan", "--since", "tomorrow", *why),
        (ExitCode.USAGE, "is not a key", "plan", "--key", "hf_1", *why),
        (ExitCode.USAGE, "reason", "plan", "--endpoint", "payouts"),
        (ExitCode.USAGE, "rate", "plan", "--endpoint", "payouts", "--rate", "0", *why),
        (ExitCode.USAGE, "32 hex digits", "status", "1"),
        (ExitCode.NOTHING_MATCHED, "no entry matches", "plan", "--key", key, *why),
        (ExitCode.NOTHING_MATCHED, "no entry matches", "plan", "--endpoint", "nobody", *why),
        (ExitCode.NOTHING_MATCHED, "no stream", "plan", "--stream", "nobody", *why),
        (ExitCode.NOTHING_MATCHED, "no replay 00000000", "apply", "00000000"),
        (ExitCode.NOTHING_MATCHED, "no replay 00000000", "cancel", "00000000", *why),
    ):
        done = holdfast("replay", *map(str, arguments), dsn=sent, code=code)
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
