"""`holdfast redeliver`: what is named is sent again under its key, or it is said why not."""

import json
import os
import subprocess
import sys

import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.world import World

STATES = "SELECT state::text FROM holdfast.replay ORDER BY created_at"


@pytest.fixture
def receiver(receiver: WebhookReceiver) -> WebhookReceiver:
    """Rejects what m_dead has, and takes everything else."""
    receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
    return receiver


def test_named_entries_are_resent_or_explained(world: World) -> None:
    world.add_endpoint(world.receiver.url)
    with Decisions(world.dsn) as decisions:
        rows = [decisions.row(name) for name in ("m_1", "m_dead", "m_dead")]
        decisions.write_rows(rows)
        world.drain()
        delivered, dead, behind = (Key.of(row["key"]).text for row in rows)
        before = len(world.receiver.seen)
        world.receiver.script = lambda _seen: answer()

        asked = ("redeliver", delivered, dead, behind, delivered, "--reason", "asked")
        unasked = world.holdfast(*asked)
        assert (unasked.returncode, "--yes" in unasked.stderr) == (ExitCode.USAGE, True)
        assert world.db.execute(STATES).fetchall() == []

        done = world.holdfast(*asked, "--yes")
        assert done.returncode == ExitCode.OK, done.stderr
        for words in (
            *(
                "same key and bytes",
                "the lane continues with it",
                f"nothing to do for {behind} at payouts",
            ),
            *("after sequence 1", "holdfast replay status"),
        ):
            assert words in done.stdout, done.stdout
        world.drain()
        came = [seen.header("webhook-id") for seen in world.receiver.seen[before:]]
        assert sorted(came) == sorted([delivered, dead, behind])
        assert world.db.execute(STATES).fetchall() == [("applied",)]

        late = decisions.row("m_2")
        decisions.write_rows([late])
    new = Key.of(late["key"]).text
    nothing = world.holdfast("redeliver", new, "--reason", "asked", "--yes", "--json")
    assert nothing.returncode == ExitCode.NOTHING_MATCHED
    [left] = json.loads(nothing.stdout)["nothing"]
    assert (left["key"], "first time" in left["why"]) == (new, True)
    assert world.db.execute(STATES).fetchall() == [("applied",), ("cancelled",)]
    world.holdfast("endpoint", "pause", "payouts", "--reason", "maintenance")
    world.drain()
    nothing = world.holdfast("redeliver", new, "--reason", "asked", "--yes")
    assert nothing.returncode == ExitCode.NOTHING_MATCHED
    assert "and sent in any case; see `holdfast why`" in nothing.stdout
    elsewhere = ("--endpoint", "nobody", "--reason", "asked", "--yes")
    unwanted = world.holdfast("redeliver", new, *elsewhere)
    assert unwanted.returncode == ExitCode.NOTHING_MATCHED
    assert "`holdfast why KEY`" in unwanted.stderr


def test_obstacles_to_sending_are_shown_before_confirmation(world: World) -> None:
    world.add_endpoint()
    with Decisions(world.dsn) as decisions:
        row = decisions.row("m_dead")
        decisions.write_rows([row])
    world.drain()
    key = Key.of(row["key"]).text
    world.holdfast("endpoint", "pause", "payouts", "--reason", "maintenance")
    paused = (
        "endpoint payouts is paused (maintenance): nothing is sent there before"
        " `holdfast endpoint resume payouts --reason TEXT`"
    )
    nobody = "no dispatcher is running: nothing is sent before `holdfast dispatch` runs"
    planned = world.holdfast("replay", "plan", "--key", key, "--reason", "asked", "--json")
    assert planned.json["obstacles"] == [paused, nobody]
    done = world.holdfast("redeliver", key, "--reason", "asked", "--yes", code=ExitCode.OK)
    assert f"note: {paused}\nnote: {nobody}\n" in done.stdout

    world.holdfast("endpoint", "resume", "payouts", "--reason", "done")
    world.db.execute("UPDATE holdfast.endpoint_pace SET held_until = '2999-01-01T00:00:00Z'")
    short = planned.json["id"][:8]
    shown = world.holdfast("replay", "show", short).stdout
    assert "note: endpoint payouts is held until 2999-01-01T00:00:00Z, as its receiver" in shown
    world.db.execute("""
        UPDATE holdfast.endpoint_pace SET held_until = NULL, breaker = 'open',
            breaker_since = now(), breaker_until = now() + interval '1 hour', openings = 1
    """)
    shown = world.holdfast("replay", "show", short).stdout
    assert "note: the breaker of endpoint payouts is open: nothing is sent there before" in shown
    world.holdfast("replay", "cancel", short, "--reason", "not needed")
    ended = world.holdfast("replay", "show", short, "--json")
    assert ended.json["obstacles"] == []


def test_declining_at_a_terminal_changes_nothing(world: World) -> None:
    world.add_endpoint()
    with Decisions(world.dsn) as decisions:
        row = decisions.row("m_1")
        decisions.write_rows([row])
    world.drain()
    ours, theirs = os.openpty()
    command = ["redeliver", Key.of(row["key"]).text, "--reason", "asked", "--dsn", world.dsn]
    try:
        os.write(ours, b"n\n")
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.dispatcher.cli.main", *command],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, "not confirmed" in done.stderr) == (ExitCode.FAILED, True)
    assert "Send 1 delivery again under the original keys?" in done.stdout
    assert world.db.execute(STATES).fetchall() == [("cancelled",)]
    world.drain()
    assert len(world.receiver.seen) == 1


def test_no_match_exits_3_and_nonsense_2(dsn: str) -> None:
    why = ("--reason", "asked", "--yes")
    for code, complaint, *arguments in (
        (ExitCode.NOTHING_MATCHED, "none ever had", Key.of(["x"]).text, *why),
        (ExitCode.USAGE, "is not a key", "hf_1", *why),
        (ExitCode.USAGE, "at most 1000", *(Key.of([str(n)]).text for n in range(1001)), *why),
        (ExitCode.USAGE, "reason", Key.of(["x"]).text),
        (ExitCode.USAGE, "KEY", *why),
    ):
        done = holdfast("redeliver", *map(str, arguments), dsn=dsn, code=code)
        assert str(complaint) in done.stderr
        assert "Traceback" not in done.stderr
