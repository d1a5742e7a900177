"""What needs a person, each kind once, with a command that does what it says when it is pasted."""

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.cli.main import application
from holdfast.dispatcher.operators.overview.rules import (
    BREAKER_SECONDS,
    CLOCK_SECONDS,
    ROUTING_SECONDS,
    SNAPSHOT_SECONDS,
    NeedKind,
    database_needs,
    overview_needs,
    series,
)
from holdfast.dispatcher.operators.subjects.rules import beyond
from holdfast.dispatcher.shared.states import BARRED, CREDENTIALS


def endpoint_row(name: str, **facts: Any) -> dict[str, Any]:
    """Return a row of the overview's statement `endpoints`: active, and nothing is wrong."""
    return {
        "name": name,
        "state": "active",
        "due_lanes": 0,
        "breaker_open_seconds": None,
        "breaker_reason": None,
        "not_claimed": False,
        **facts,
    }


QUIET: dict[str, Any] = {
    "endpoints": [endpoint_row("payouts")],
    "unrouted_batches": 0,
    "unrouted_seconds": None,
    "clock_behind_seconds": -5.0,
    "read_only": False,
    "dispatchers_alive": 1,
    "dispatchers_draining": 0,
    "dead_letters": 0,
    "stopped_lanes": 0,
    "stopped_complete": True,
    "stale": [],
    "stale_complete": True,
    "quarantined": 0,
    "on_hold": 0,
    "on_hold_seconds": None,
    "on_hold_forgotten": 0,
    "silenced": 0,
    "late_ahead": 0,
    "ahead_streams": [],
    "ahead_seconds": None,
    "diverged_replays": 0,
    "diverged_streams": [],
    "replays_waiting": [],
    "proposals_planned": 0,
    "proposals_approved": 0,
    "days_ahead": 7,
    "snapshots": [],
    "undelivered": [],
    "undelivered_seconds": 900.0,
}
SESSION = {
    "kind": "session",
    "pid": 41,
    "application": "psql",
    "state": "idle in transaction",
    "age_seconds": SNAPSHOT_SECONDS + 1,
    "query": "SELECT 1",
}
PREPARED = {**SESSION, "kind": "prepared", "pid": None, "application": "gid-7"}


def _one(**facts: Any) -> dict[str, Any]:
    [need] = overview_needs({**QUIET, **facts})
    return need.row()


def test_clock_that_is_behind_what_is_stored_is_named() -> None:
    assert overview_needs({**QUIET, "clock_behind_seconds": CLOCK_SECONDS}) == []
    assert overview_needs({**QUIET, "clock_behind_seconds": None}) == []
    need = _one(clock_behind_seconds=3600.0)
    assert (need["kind"], need["command"]) == ("clock_behind", "holdfast database")
    assert "1 h behind" in need["sentence"]


def test_nothing_needs_anybody_where_all_is_well() -> None:
    assert overview_needs(QUIET) == []
    nearly = endpoint_row("a", breaker_open_seconds=BREAKER_SECONDS, due_lanes=9)
    young = {**SESSION, "age_seconds": SNAPSHOT_SECONDS}
    off = endpoint_row("b", state="paused", due_lanes=9, breaker_open_seconds=1e9)
    assert overview_needs({**QUIET, "endpoints": [nearly, off], "snapshots": [young]}) == []
    just_written = {"unrouted_batches": 1, "unrouted_seconds": ROUTING_SECONDS}
    assert overview_needs({**QUIET, **just_written}) == []


def test_each_kind_has_its_count_and_command() -> None:
    nobody = _one(
        dispatchers_alive=0, unrouted_batches=2, endpoints=[endpoint_row("a", due_lanes=1)]
    )
    assert (nobody["kind"], nobody["count"], nobody["command"]) == (
        "no_dispatcher",
        3,
        "holdfast dispatch",
    )
    assert nobody["sentence"] == (
        "no dispatcher is alive, and 1 subject is due, 2 batches wait to be routed"
    )
    idle = _one(dispatchers_alive=0)
    assert (idle["kind"], idle["count"]) == ("no_dispatcher", 1)
    assert idle["sentence"] == "no dispatcher is alive: nothing waits now, but a new decision will"
    leaving = _one(dispatchers_alive=0, dispatchers_draining=1)["sentence"]
    assert leaving.startswith("1 dispatcher is draining and no dispatcher is alive")
    unrouted = _one(unrouted_batches=2, unrouted_seconds=ROUTING_SECONDS + 1)
    assert (unrouted["kind"], unrouted["count"]) == ("not_routed", 2)
    assert unrouted["sentence"].startswith("2 batches wait to be routed, the oldest for 2 min")
    idle = _one(endpoints=[endpoint_row("a", due_lanes=1, not_claimed=True), endpoint_row("b")])
    assert (idle["kind"], idle["count"], idle["command"]) == (
        "not_claimed",
        1,
        "holdfast config check",
    )
    assert "1 endpoint" in idle["sentence"]
    assert ": a." in idle["sentence"]
    assert _one(dead_letters=1)["sentence"] == "1 dead letter is open"
    assert _one(stopped_lanes=1200)["sentence"] == "1,200 lanes wait behind a dead letter"
    many = _one(stopped_lanes=5, stopped_complete=False)
    assert many["sentence"] == "at least 5 lanes wait behind a dead letter"
    held = _one(on_hold=2, on_hold_seconds=7200.0, on_hold_forgotten=1)
    assert (held["kind"], held["count"], held["command"]) == (
        "subjects_on_hold",
        2,
        "holdfast subject list --held on_hold",
    )
    assert held["sentence"].startswith(
        "2 subjects are on hold at an endpoint, the first for 2 h; 1 has been"
    )
    silenced = _one(silenced=2)
    assert (silenced["kind"], silenced["count"], silenced["command"]) == (
        "silenced_subjects",
        2,
        "holdfast subject list --silenced",
    )
    ahead = _one(late_ahead=3, ahead_streams=["payouts"], ahead_seconds=210.0)
    assert (ahead["kind"], ahead["count"]) == ("watermark_ahead", 3)
    assert ahead["command"] == "holdfast late-event list --reason late --stream payouts"
    assert "up to 3 min 30 s ahead of the clock" in ahead["sentence"]
    assert _one(quarantined=2)["command"] == "holdfast quarantine list"
    diverged = _one(diverged_replays=1, diverged_streams=["payouts"])
    assert diverged["command"] == "holdfast stream show payouts"
    waiting = _one(replays_waiting=[UUID(int=1)])
    assert (waiting["kind"], waiting["count"]) == ("replays_waiting", 1)
    assert waiting["command"].startswith("holdfast replay approve 00000000 ")
    names = [endpoint_row(name, state="disabled") for name in "abcdefg"]
    disabled = _one(endpoints=names)
    assert (disabled["count"], disabled["command"]) == (7, "holdfast endpoint show a")
    assert disabled["sentence"] == "7 endpoints are disabled: a, b, c, d, e and 2 more"
    tripped = _one(endpoints=[endpoint_row("a", breaker_open_seconds=BREAKER_SECONDS + 1)])
    assert tripped["sentence"] == "1 breaker has been open for more than 10 min: a"


def _waiting(endpoint: str, late: int, age: float, **facts: Any) -> dict[str, Any]:
    reply = {"subject": "m_7", "number": 4, "outcome": "failed", "status": 503, "error": None}
    since = NOON - timedelta(seconds=age)
    row = {"endpoint": endpoint, "late": late, "age_seconds": age, "head_created_at": since}
    return {**row, **reply, **facts}


def test_undelivered_entry_names_subject_answer_and_command() -> None:
    assert overview_needs({**QUIET, "undelivered": [_waiting("a", 0, 899.0)]}) == []
    need = _one(undelivered=[_waiting("a", 2, 1320.0), _waiting("b", 1, 901.0, subject="m_8")])
    assert (need["kind"], need["count"]) == ("undelivered", 3)
    assert need["command"] == "holdfast why --endpoint a m_7"
    assert "to a, b for more than 15 min." in need["sentence"]
    assert "m_7, for 22 min: attempt 4 ended failed (HTTP 503)" in need["sentence"]
    strange = {"subject": "-x\x1b[2J", "status": None, "error": "reset"}
    odd = _one(undelivered=[_waiting("a", 1, 1320.0, **strange)])
    assert "failed (reset)" in odd["sentence"]
    assert "\x1b" not in odd["sentence"] + odd["command"]
    assert " -- " in odd["command"]


def test_address_refused_by_the_guard_is_no_failing_receiver() -> None:
    facts = {"breaker_open_seconds": BREAKER_SECONDS + 1, "breaker_reason": f"{BARRED}: 10.0.0.1"}
    need = _one(endpoints=[endpoint_row("a", **facts)])
    assert (need["kind"], need["count"]) == ("addresses_refused", 1)
    assert need["command"] == "holdfast endpoint test a"
    assert _one(endpoints=[endpoint_row("a", **{**facts, "breaker_open_seconds": 0.1})]) == need
    over = endpoint_row("a", **{**facts, "breaker_open_seconds": None})
    assert overview_needs({**QUIET, "endpoints": [over]}) == []


def test_refused_secret_is_named_once_and_at_once() -> None:
    reason = f"{CREDENTIALS}: the probe answered 401"
    facts = {"breaker_open_seconds": 0.1, "breaker_reason": reason}
    need = _one(endpoints=[endpoint_row("a", **facts), endpoint_row("b", **facts)])
    assert (need["kind"], need["count"]) == ("credentials_refused", 2)
    assert need["command"] == "holdfast endpoint test a"
    long = {**facts, "breaker_open_seconds": BREAKER_SECONDS + 1}
    assert _one(endpoints=[endpoint_row("a", **long)])["kind"] == "credentials_refused"


def test_unexplained_stale_decisions_are_counted_byendpoint_row() -> None:
    need = _one(stale=["ledger", "a", "ledger"])
    assert (need["kind"], need["count"]) == ("stale_answers", 3)
    assert need["command"] == "holdfast receipts --endpoint a"
    assert "a, ledger answered" in need["sentence"]
    assert _one(stale=["a"], stale_complete=False)["sentence"].startswith("at least 1 delivery of")


def test_partitions_are_reported_before_and_after_they_run_out() -> None:
    assert "1 day after today only" in _one(days_ahead=1)["sentence"]
    assert "nothing can be written" in _one(days_ahead=-1)["sentence"]


def test_old_snapshots_are_reported_with_a_remedy() -> None:
    session = _one(snapshots=[SESSION, PREPARED])
    assert (session["kind"], session["count"]) == ("old_snapshot", 2)
    assert "pid 41 (psql, idle in transaction)" in session["sentence"]
    assert "pg_terminate_backend(41)" in session["command"]
    prepared = _one(snapshots=[PREPARED])
    assert "'gid-7'" in prepared["sentence"]
    assert "pg_prepared_xacts" in prepared["command"]


def test_read_only_server_is_the_only_reason_that_nothing_moves() -> None:
    idle = endpoint_row("a", due_lanes=1, not_claimed=True)
    waits = {"unrouted_batches": 2, "unrouted_seconds": ROUTING_SECONDS + 1, "endpoints": [idle]}
    need = _one(read_only=True, dispatchers_alive=2, **waits)
    assert (need["kind"], need["command"]) == ("cannot_write", "holdfast database")
    assert "2 dispatchers are alive" in need["sentence"]


def test_most_urgent_comes_first() -> None:
    everything = {
        **QUIET,
        "endpoints": [endpoint_row("a", due_lanes=1), endpoint_row("b", state="disabled")],
        "dispatchers_alive": 0,
        "dead_letters": 1,
        "quarantined": 1,
        "snapshots": [SESSION],
        "days_ahead": 0,
    }
    kinds = [need.kind for need in overview_needs(everything)]
    assert kinds == sorted(kinds, key=list(NeedKind).index)
    assert len(kinds) == 6


def test_database_needs_its_schema_and_its_days() -> None:
    results = {
        "partitions": [{"days_ahead": 7}, {"days_ahead": 1}],
        "snapshots": [],
        "revision": "0001",
        "revision_needed": "0002",
    }
    assert [need.kind for need in database_needs(results)] == [NeedKind.SCHEMA, NeedKind.PARTITIONS]
    assert database_needs({**results, "partitions": [{"days_ahead": 2}], "revision": "0002"}) == []


def test_open_proposals_are_listed() -> None:
    command = "holdfast proposal list"
    for planned, approved in ((1, 0), (0, 1), (2, 3)):
        need = _one(proposals_planned=planned, proposals_approved=approved)
        assert (need["kind"], need["command"]) == ("proposals_waiting", command)
        assert need["count"] == planned + approved


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = int(NOON.timestamp()) // 60

texts = st.text(st.characters(exclude_categories=["Cs"]))


def test_series_has_every_minute_and_its_sums() -> None:
    tried = [(MINUTE, "failed", 2), (MINUTE + 2, "delivered", 5), (MINUTE + 2, "failed", 1)]
    written = [(MINUTE + 1, 7), (MINUTE - 1, 100), (MINUTE + 9, 100)]
    rows, totals = series(NOON, NOON.replace(minute=2, second=59), tried, written)
    assert [row.minute.minute for row in rows] == [0, 1, 2]
    assert [row.entries for row in rows] == [0, 7, 0]
    assert [row.attempts for row in rows] == [2, 0, 6]
    assert [row.deliveries for row in rows] == [0, 0, 5]
    assert rows[2].outcomes == {"delivered": 5, "failed": 1}
    assert totals == {
        "entries": 7,
        "attempts": 8,
        "deliveries": 5,
        "outcomes": {"delivered": 5, "failed": 3},
    }


@given(texts, texts)
def test_everything_with_a_prefix_is_before_what_is_beyond(prefix: str, text: str) -> None:
    end = beyond(prefix)
    inside = prefix.encode() <= text.encode() and (end is None or text.encode() < end.encode())
    assert inside == text.startswith(prefix)


ROOT = Path(__file__).parents[4]
QUICK = re.compile(r"`holdfast [^`{]*[{A-Z]|\"holdfast ")
COMMAND = re.compile(r"`holdfast ([^`]+)`")


def _text(node: ast.expr) -> str:
    """A string of the source with 1 in place of whatever is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.FormattedValue(value=ast.IfExp(body=ast.Constant(value=str(text)))):
            return text
        case _:
            return "1"


def _strings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant | ast.JoinedStr):
        yield _text(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from _strings(child)


def _advised() -> list[tuple[str, str]]:
    """The file and the words of every command that stands in a string of ours."""
    result = set()
    for folder in ("dispatcher", "sink", "spark_app", "migrations", "deploy"):
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text()
            if not QUICK.search(source):
                continue
            for text in _strings(ast.parse(source)):
                full = text.removeprefix("holdfast ")
                words = [*COMMAND.findall(text), *([full] if full != text else [])]
                result |= {(str(path.relative_to(ROOT)), " ".join(each.split())) for each in words}
    return sorted(result)


@pytest.fixture(scope="module")
def root() -> Any:
    return typer.main.get_command(application([]))


def _lacks(root: Any, words: list[str]) -> list[str]:
    """The options that it needs and has not; a command without its object is only mentioned."""
    command = root
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if not words or words[0].startswith("-") or "--help" in words:
        return []
    needed = [each for each in command.params if each.required and each.opts[0].startswith("-")]
    return [each.name for each in needed if not {*each.opts} & {*words}]


def test_suggested_command_has_every_required_option(root: Any) -> None:
    advised = _advised()
    assert (
        "dispatcher/delivery/rules/pace.py",
        "endpoint resume 1 --reason TEXT",
    ) in advised
    assert _lacks(root, ["endpoint", "resume", "payouts"]) == ["reason"]
    lacking = {(path, text): _lacks(root, text.split()) for path, text in advised}
    assert {place: lacks for place, lacks in lacking.items() if lacks} == {}
