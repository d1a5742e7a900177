"""What may repeat a business action: a few a day alone, more with a second person."""

import getpass
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


WHY = ("--reason", "the bank lost it")
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()"""


@pytest.fixture
def decisions(dsn: str, db: psycopg.Connection, receiver: WebhookReceiver) -> Iterator[Decisions]:
    add_endpoint(db, receiver.url)
    with Decisions(dsn) as decisions:
        yield decisions


def _written(decisions: Decisions, dsn: str, count: int) -> list[str]:
    rows = [decisions.row(f"m_{number}") for number in range(count)]
    decisions.write_rows(rows)
    drain(dsn)
    return [Key.of(row["key"]).text for row in rows]


def _reissue(dsn: str, keys: list[str], *more: str) -> dict[str, object]:
    return holdfast(
        "reissue", *keys, *WHY, "--yes", "--json", *more, dsn=dsn, code=ExitCode.OK
    ).json


def test_split_reissues_of_a_day_count_towards_the_limit(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 4)
    assert _reissue(world.dsn, keys[:2], "--limit", "2")["approve"] is None
    second = _reissue(world.dsn, keys[2:3], "--limit", "2")
    assert second["reissued"] == []
    assert second["approve"] is not None
    with acting_as("second"):
        assert _reissue(world.dsn, keys[3:], "--limit", "2")["approve"] is None
    assert world.db.execute(
        "SELECT DISTINCT person FROM holdfast.replay ORDER BY 1"
    ).fetchall() == [(name,) for name in sorted([getpass.getuser(), "second"])]


def test_each_endpoint_that_gets_a_reissued_entry_is_an_action(world: World) -> None:
    for name in ("audit", "ledger"):
        world.add_endpoint(name=name)
    keys = _written(world.decisions, world.dsn, 2)
    assert _reissue(world.dsn, keys[:1], "--limit", "2")["approve"] is not None
    world.drain()
    assert len(world.receiver.seen) == 6
    with acting_as("second"):
        assert _reissue(world.dsn, keys[1:], "--limit", "3")["approve"] is None
        # Three of these five are used up already.
        assert _reissue(world.dsn, keys[1:], "--limit", "5")["approve"] is not None
    counts = "SELECT (counts ->> 'repeats')::int, item_count FROM holdfast.replay"
    assert world.db.execute(counts).fetchall() == [(3, 3)] * 3


def test_yesterday_s_do_not_count_and_what_is_planned_does(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 3)
    _reissue(world.dsn, keys[:1], "--limit", "1")
    world.db.execute(
        "UPDATE holdfast.replay SET created_at = created_at - interval '25 h',"
        " applied_at = applied_at - interval '25 h', finished_at = finished_at - interval '25 h'"
    )
    assert _reissue(world.dsn, keys[1:2], "--limit", "1")["approve"] is None
    # Planned days ago and never applied: it may be applied today.
    world.db.execute(
        "UPDATE holdfast.replay SET created_at = created_at - interval '3 d', finished_at = NULL,"
        " applied_at = NULL, state = 'planned'"
    )
    world.db.execute("UPDATE holdfast.replay_item SET settled_at = NULL")
    assert _reissue(world.dsn, keys[2:], "--limit", "1")["approve"] is not None


def test_whoever_asks_cannot_raise_the_limit(dsn: str, decisions: Decisions) -> None:
    keys = _written(decisions, dsn, 11)
    assert _reissue(dsn, keys, "--limit", "1000")["approve"] is not None


def test_plan_waits_for_another_and_counts_it(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 2)
    with (
        Reissues.connect(world.dsn) as first,
        Reissues.connect(world.dsn) as second,
        ThreadPoolExecutor() as threads,
    ):
        one, other = ([first.preview(Key.parse(key))] for key in keys)
        with first._transaction():
            assert not first.waits(first.plan(one, "test", limit=1))
            planning = threads.submit(second.plan, other, "test", limit=1)
            eventually(lambda: world.value(WAITING) == 1)
        assert second.waits(planning.result())


def test_two_plans_at_once_do_not_both_slip_under_the_limit(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 2)

    def plan(key: str) -> int:
        arguments = ("reissue", key, *WHY, "--yes", "--limit", "1")
        return holdfast(*arguments, dsn=world.dsn, process=True).returncode

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(plan, keys)) == [ExitCode.OK, ExitCode.OK]
    rows = world.db.execute("SELECT state::text FROM holdfast.replay ORDER BY 1").fetchall()
    assert sorted(rows) == [("applied",), ("planned",)]


def test_name_in_the_environment_is_no_second_person(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 2)
    short = str(_reissue(world.dsn, keys, "--limit", "1")["replay"])[:8]
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        other = {name: "second"}
        done = holdfast("replay", "approve", short, *WHY, dsn=world.dsn, environment=other)
        assert (done.returncode, "that is you" in done.stderr) == (ExitCode.FAILED, True)


def _forgotten(db: psycopg.Connection) -> None:
    """Let every receiver have forgotten what it was sent."""
    db.execute("UPDATE holdfast.endpoint_pace SET key_window_seconds=0, key_window_seen_at=now()")


def test_forgotten_keys_count_as_repeated(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 12)
    _forgotten(world.db)
    ten = ("--outside-window", "--yes", "--json")
    first = world.holdfast("redeliver", *keys[:10], *WHY, *ten, code=ExitCode.OK)
    assert first.json["approve"] is None
    world.drain()
    assert len(world.receiver.seen) == 22
    # One budget: neither verb goes on where the other ended.
    assert _reissue(world.dsn, keys[10:11])["approve"] is not None
    more = world.holdfast("redeliver", keys[11], *WHY, *ten)
    reply = more.json
    short = reply["replay"]["id"][:8]
    assert reply["approve"] == f"holdfast replay approve {short} --reason TEXT"
    refused = world.holdfast("replay", "apply", short)
    assert (refused.returncode, "second person" in refused.stderr) == (ExitCode.FAILED, True)
    with acting_as("second"):
        assert world.holdfast("replay", "approve", short, *WHY).returncode == ExitCode.OK
    assert world.holdfast("replay", "apply", short).returncode == ExitCode.OK
    world.drain()
    assert len(world.receiver.seen) == 23


def test_keys_forgotten_after_planning_count_on_apply(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 11)
    chosen = [part for key in keys for part in ("--key", key)]
    made = world.holdfast("replay", "plan", *chosen, *WHY, "--outside-window", "--json")
    short = json.loads(made.stdout)["id"][:8]
    _forgotten(world.db)
    refused = world.holdfast("replay", "apply", short)
    assert (refused.returncode, "second person" in refused.stderr) == (ExitCode.FAILED, True)
    with acting_as("second"):
        assert world.holdfast("replay", "approve", short, *WHY).returncode == ExitCode.OK
    assert world.holdfast("replay", "apply", short).returncode == ExitCode.OK


def test_plan_that_needs_a_second_person_needs_one_for_good(world: World) -> None:
    """Though its receiver turns out to remember the keys, which would need nobody."""
    keys = _written(world.decisions, world.dsn, 11)
    _forgotten(world.db)
    arguments = (*keys, *WHY, "--outside-window", "--yes", "--json")
    short = world.holdfast("redeliver", *arguments).json["replay"]["id"][:8]
    world.db.execute("UPDATE holdfast.endpoint_pace SET key_window_seconds = NULL")
    refused = world.holdfast("replay", "apply", short)
    assert (refused.returncode, "second person" in refused.stderr) == (ExitCode.FAILED, True)
    with acting_as("second"):
        assert world.holdfast("replay", "approve", short, *WHY).returncode == ExitCode.OK
    assert world.holdfast("replay", "apply", short).returncode == ExitCode.OK


def test_plan_cancelled_before_any_write_is_not_counted(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 2)
    with Reissues.connect(world.dsn) as store:
        plan = store.plan([store.preview(Key.parse(keys[0]))], "a test", limit=1)
    assert world.holdfast("replay", "cancel", plan.hex, *WHY).returncode == ExitCode.OK
    assert _reissue(world.dsn, keys[1:], "--limit", "1")["approve"] is None


def test_keys_forgotten_after_the_plan_began_are_not_sent(world: World) -> None:
    keys = _written(world.decisions, world.dsn, 11)
    arguments = (*keys, *WHY, "--outside-window", "--yes", "--json")
    reply = json.loads(holdfast("redeliver", *arguments, dsn=world.dsn).stdout)
    assert (reply["approve"], reply["replay"]["state"]) == (None, "applying")
    _forgotten(world.db)
    world.drain()
    assert len(world.receiver.seen) == 11
    outcomes = world.db.execute(
        "SELECT DISTINCT outcome::text FROM holdfast.replay_item"
    ).fetchall()
    assert outcomes == [("refused",)]
