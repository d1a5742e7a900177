"""`holdfast redeliver`: what is named is sent again under its key, or it is said why not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions

STATES = "SELECT state::text FROM holdfast.replay ORDER BY created_at"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookReceiver]:
    """Rejects what m_dead has, and takes everything else."""
    monkeypatch.setenv(SECRET, secret_text())
    with webhooks.listening() as receiver:
        receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
        yield receiver


def test_named_entries_are_sent_again_and_it_is_said_where_nothing_happens_and_why(
    dsn: str, db: psycopg.Connection, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    with Decisions(dsn) as decisions:
        rows = [decisions.row(name) for name in ("m_1", "m_dead", "m_dead")]
        decisions.write_rows(rows)
        drain(dsn)
        delivered, dead, behind = (Key.of(row["key"]).text for row in rows)
        before = len(receiver.seen)
        receiver.script = lambda _seen: answer()

        asked = ("redeliver", delivered, dead, behind, delivered, "--reason", "asked")
        unasked = holdfast(*asked, dsn=dsn)
        assert (unasked.returncode, "--yes" in unasked.stderr) == (ExitCode.USAGE, True)
        assert db.execute(STATES).fetchall() == []

        done = holdfast(*asked, "--yes", dsn=dsn)
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
        drain(dsn)
        came = [seen.header("webhook-id") for seen in receiver.seen[before:]]
        assert sorted(came) == sorted([delivered, dead, behind])
        assert db.execute(STATES).fetchall() == [("applied",)]

        late = decisions.row("m_2")
        decisions.write_rows([late])
    new = Key.of(late["key"]).text
    nothing = holdfast("redeliver", new, "--reason", "asked", "--yes", "--json", dsn=dsn)
    assert nothing.returncode == ExitCode.NOTHING_MATCHED
    [left] = json.loads(nothing.stdout)["nothing"]
    assert (left["key"], "first time" in left["why"]) == (new, True)
    assert db.execute(STATES).fetchall() == [("applied",), ("cancelled",)]
    holdfast("endpoint", "pause", "payouts", "--reason", "maintenance", dsn=dsn)
    drain(dsn)
    nothing = holdfast("redeliver", new, "--reason", "asked", "--yes", dsn=dsn)
    assert nothing.returncode == ExitCode.NOTHING_MATCHED
    assert "and sent in any case; see `holdfast why`" in nothing.stdout
    elsewhere = ("--endpoint", "nobody", "--reason", "asked", "--yes")
    unwanted = holdfast("redeliver", new, *elsewhere, dsn=dsn)
    assert unwanted.returncode == ExitCode.NOTHING_MATCHED
    assert "`holdfast why KEY`" in unwanted.stderr


def test_what_keeps_it_from_being_sent_is_said_before_it_is_agreed_to(
    dsn: str, db: psycopg.Connection, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    with Decisions(dsn) as decisions:
        row = decisions.row("m_dead")
        decisions.write_rows([row])
    drain(dsn)
    key = Key.of(row["key"]).text
    holdfast("endpoint", "pause", "payouts", "--reason", "maintenance", dsn=dsn)
    paused = (
        "endpoint payouts is paused (maintenance): nothing is sent there before"
        " `holdfast endpoint resume payouts --reason TEXT`"
    )
    nobody = "no dispatcher is running: nothing is sent before `holdfast dispatch` runs"
    planned = holdfast("replay", "plan", "--key", key, "--reason", "asked", "--json", dsn=dsn)
    assert json.loads(planned.stdout)["obstacles"] == [paused, nobody]
    done = holdfast("redeliver", key, "--reason", "asked", "--yes", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert f"note: {paused}\nnote: {nobody}\n" in done.stdout

    holdfast("endpoint", "resume", "payouts", "--reason", "done", dsn=dsn)
    db.execute("UPDATE holdfast.endpoint_pace SET held_until = '2999-01-01T00:00:00Z'")
    short = json.loads(planned.stdout)["id"][:8]
    shown = holdfast("replay", "show", short, dsn=dsn).stdout
    assert "note: endpoint payouts is held until 2999-01-01T00:00:00Z, as its receiver" in shown
    db.execute("""
        UPDATE holdfast.endpoint_pace SET held_until = NULL, breaker = 'open',
            breaker_since = now(), breaker_until = now() + interval '1 hour', openings = 1
    """)
    shown = holdfast("replay", "show", short, dsn=dsn).stdout
    assert "note: the breaker of endpoint payouts is open: nothing is sent there before" in shown
    holdfast("replay", "cancel", short, "--reason", "not needed", dsn=dsn)
    ended = holdfast("replay", "show", short, "--json", dsn=dsn)
    assert json.loads(ended.stdout)["obstacles"] == []


def test_person_at_a_terminal_who_says_no_leaves_everything_as_it_was(
    dsn: str, db: psycopg.Connection, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    with Decisions(dsn) as decisions:
        row = decisions.row("m_1")
        decisions.write_rows([row])
    drain(dsn)
    ours, theirs = os.openpty()
    command = ["redeliver", Key.of(row["key"]).text, "--reason", "asked", "--dsn", dsn]
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
    assert db.execute(STATES).fetchall() == [("cancelled",)]
    drain(dsn)
    assert len(receiver.seen) == 1


def test_what_nothing_matches_is_exit_code_3_and_what_makes_no_sense_is_2(dsn: str) -> None:
    why = ("--reason", "asked", "--yes")
    for code, complaint, *arguments in (
        (ExitCode.NOTHING_MATCHED, "none ever had", Key.of(["x"]).text, *why),
        (ExitCode.USAGE, "is not a key", "hf_1", *why),
        (ExitCode.USAGE, "at most 1000", *(Key.of([str(n)]).text for n in range(1001)), *why),
        (ExitCode.USAGE, "reason", Key.of(["x"]).text),
        (ExitCode.USAGE, "KEY", *why),
    ):
        done = holdfast("redeliver", *map(str, arguments), dsn=dsn)
        assert done.returncode == code, done.stderr
        assert str(complaint) in done.stderr
        assert "Traceback" not in done.stderr
