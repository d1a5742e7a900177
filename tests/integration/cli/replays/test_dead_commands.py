"""`holdfast dead-letter`: what was given up is found, explained, taken away and dismissed."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.world import World

AUDIT = "SELECT action, target, reason, detail FROM holdfast.operator_action ORDER BY id"


@pytest.fixture
def receiver(receiver: WebhookReceiver) -> WebhookReceiver:
    """Rejects each subject's first entry, in words that drive a terminal."""
    receiver.script = lambda seen: (
        answer(400, b"no\x1b[2J such merchant") if seen.sequence == 1 else answer()
    )
    return receiver


@pytest.fixture
def dead(dsn: str, db: psycopg.Connection, receiver: WebhookReceiver) -> str:
    """A database in which m_1 and m_2 have a dead letter each, at an endpoint of either policy."""
    add_endpoint(db, receiver.url, name="stops")
    add_endpoint(db, receiver.url, name="skips", order_policy="skip")
    with Decisions(dsn) as decisions:
        decisions.write("m_1", "m_1", "m_1")
        decisions.write("m_2")
    drain(dsn)
    return dsn


def _json(dsn: str, *arguments: str) -> dict[str, Any]:
    return holdfast("dead", *arguments, "--json", dsn=dsn, code=ExitCode.OK).json


def _listed(dsn: str, *arguments: str) -> list[tuple[str, str]]:
    done = holdfast("dead-letter", "list", *arguments, "--json", dsn=dsn)
    rows = json.loads(done.stdout)["dead_letters"]
    assert done.returncode == (ExitCode.OK if rows else ExitCode.NOTHING_MATCHED)
    return sorted((row["endpoint"], row["subject"]) for row in rows)


def _number(dsn: str, endpoint: str, subject: str) -> str:
    [row] = _json(dsn, "list", "--endpoint", endpoint, "--subject", subject)["dead_letters"]
    return str(row["id"])


def test_they_are_found_explained_and_taken_away(dead: str, tmp_path: Path) -> None:
    everywhere = [(name, who) for name in ("skips", "stops") for who in ("m_1", "m_2")]
    assert _listed(dead) == everywhere
    assert _listed(dead, "--reason", "rejected", "--endpoint", "stops") == everywhere[2:]
    assert _listed(dead, "--reason", "exhausted") == _listed(dead, "--resolved") == []
    page = _json(dead, "list", "--limit", "3")
    assert len(page["dead_letters"]) == 3
    assert len(_listed(dead, "--before", str(page["next_before"]))) == 1
    assert {row["endpoint"] for row in page["dead_letters"] if row["holds_lane"]} <= {"stops"}

    stopped = _json(dead, "show", _number(dead, "stops", "m_1"))
    assert "2 later entries" in stopped["holds"]
    assert json.loads(stopped["body"])["sequence"] == 1
    assert [each["outcome"] for each in stopped["newest_attempts"]] == ["rejected"]
    commands = [each["command"] for each in stopped["advice"]]
    assert any(f"redeliver {stopped['key']} --endpoint stops" in each for each in commands)
    assert any("dismiss" in each and "--skip" in each for each in commands)
    skipped = _json(dead, "show", _number(dead, "skips", "m_1"))
    assert skipped["holds"].startswith("nothing")
    assert not any("--skip" in each["command"] for each in skipped["advice"])

    for arguments in (("list",), ("show", str(stopped["id"]))):
        text = holdfast("dead", *arguments, dsn=dead).stdout
        assert stopped["key"] in text
        assert "\x1b" not in text

    output = tmp_path / "dead.jsonl"
    done = holdfast(
        "dead-letter", "export", "--endpoint", "stops", "--output", str(output), dsn=dead
    )
    assert "2 dead letters written" in done.stdout
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [json.loads(row["body"])["key"] for row in rows] == [row["key"] for row in rows]
    assert len(holdfast("dead-letter", "export", dsn=dead).stdout.splitlines()) == 4


def test_lane_holder_is_given_up_only_on_demand(world: World, dead: str) -> None:
    stops, skips = (_number(dead, name, "m_1") for name in ("stops", "skips"))
    idle = _number(dead, "stops", "m_2")
    refused = holdfast("dead-letter", "dismiss", stops, skips, "--reason", "moot", dsn=dead)
    assert refused.returncode == ExitCode.USAGE
    for words in ("never gets this decision", "Nothing was changed", "--skip"):
        assert words in refused.stderr
    assert len(_listed(dead)) == 4

    done = _json(dead, "dismiss", skips, "--reason", "moot")
    assert [row["lane_goes_on"] for row in done["dismissed"]] == [False]
    done = _json(dead, "dismiss", stops, skips, idle, "--skip", "--reason", "moot")
    assert [row["lane_goes_on"] for row in done["dismissed"]] == [True, True]
    assert [str(row["id"]) for row in done["resolved_before"]] == [skips]
    assert sorted(row[:3] for row in world.db.execute(AUDIT)) == sorted(
        ("dead.dismiss", f"dead letter {each}", "moot") for each in (skips, stops, idle)
    )
    shown = _json(dead, "list", "--resolved")["dead_letters"]
    assert {(row["resolution"], row["resolution_reason"]) for row in shown} == {
        ("dismissed", "moot")
    }

    before = len(world.receiver.seen)
    drain(dead)
    assert [(seen.subject, seen.sequence) for seen in world.receiver.seen[before:]] == [
        ("m_1", 2),
        ("m_1", 3),
    ]
    assert {lane.state for lane in world.lanes().values()} == {LaneState.IDLE}
    again = holdfast("dead-letter", "dismiss", stops, "--skip", "--reason", "moot", dsn=dead)
    assert again.returncode == ExitCode.NOTHING_MATCHED
    assert "dismissed already" in again.stderr


def test_no_match_exits_3_and_nonsense_2(dsn: str) -> None:
    for code, complaint, *arguments in (
        (ExitCode.NOTHING_MATCHED, "no endpoint 'payout'", "list", "--endpoint", "payout"),
        (ExitCode.NOTHING_MATCHED, "no subject 'm_9'", "list", "--subject", "m_9"),
        (ExitCode.NOTHING_MATCHED, "no dead letter 7", "show", "7"),
        (ExitCode.NOTHING_MATCHED, "no dead letter 7", "dismiss", "7", "--reason", "moot"),
        (ExitCode.NOTHING_MATCHED, "nothing was written", "export"),
        (ExitCode.USAGE, "--reason", "dismiss", "7"),
        (ExitCode.USAGE, "1 to 2000", "dismiss", "7", "--reason", " "),
        (ExitCode.USAGE, "bored", "list", "--reason", "bored"),
    ):
        done = holdfast("dead", *map(str, arguments), dsn=dsn, code=code)
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


def test_only_lanes_still_behind_a_dead_letter_are_counted(dead: str) -> None:
    status = holdfast("status", "--json", dsn=dead).json
    assert {need["kind"]: need["count"] for need in status["needs"]}["stopped_lanes"] == 2
    for subject in ("m_1", "m_2"):
        letter = _number(dead, "stops", subject)
        holdfast(
            "dead-letter", "dismiss", letter, "--reason", "x", "--skip", dsn=dead, code=ExitCode.OK
        )
    status = holdfast("status", "--json", dsn=dead).json
    assert "stopped_lanes" not in {need["kind"] for need in status["needs"]}
