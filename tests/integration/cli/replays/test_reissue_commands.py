"""`holdfast reissue`: an action is repeated once, under a new key, because somebody said so."""

import getpass
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.reissue.actions import write_all
from holdfast.dispatcher.operators.reissue.rules import parts_of
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.sender import RELEASE, decision
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.job.job_stream import sequences
from tests.support.refusal import raises_code
from tests.support.world import World

pytestmark = pytest.mark.rest


WHY = ("--reason", "the bank lost it")
AUDIT = "SELECT action, target, actor, detail FROM holdfast.operator_action ORDER BY id"
LINKS = """
    SELECT y.state::text, i.key, i.new_key, i.settled_at IS NOT NULL
    FROM holdfast.replay y JOIN holdfast.replay_item i ON i.replay_id = y.id ORDER BY y.created_at
"""


@pytest.fixture
def receiver(receiver: WebhookReceiver) -> WebhookReceiver:
    """Rejects the first that m_dead has, and takes everything else."""
    receiver.script = lambda seen: answer(
        400 if seen.subject == "m_dead" and seen.sequence == 1 else 200
    )
    return receiver


@pytest.fixture
def decisions(dsn: str, db: psycopg.Connection, receiver: WebhookReceiver) -> Iterator[Decisions]:
    add_endpoint(db, receiver.url)
    with Decisions(dsn) as decisions:
        yield decisions


def _written(decisions: Decisions, dsn: str, *subjects: str) -> list[str]:
    """Write a decision each and deliver them; returns their keys."""
    rows = [decisions.row(subject) for subject in subjects]
    decisions.write_rows(rows)
    drain(dsn)
    return [Key.of(row["key"]).text for row in rows]


def test_each_confirmed_reissue_gets_a_new_key(world: World) -> None:
    [key] = _written(world.decisions, world.dsn, "m_1")
    unasked = holdfast("reissue", key, *WHY, dsn=world.dsn)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (ExitCode.USAGE, True)
    assert world.db.execute(LINKS).fetchall() == []

    done = holdfast("reissue", key, *WHY, "--yes", dsn=world.dsn, code=ExitCode.OK)
    for words in ("repeats the business action", "m_1", "8500000", "delivered at", "for payouts"):
        assert words in done.stdout, done.stdout
    first = Key.of(["reissue/v1", key, "1"])
    assert world.db.execute(LINKS).fetchall() == [
        ("applied", Key.parse(key).digest, first.digest, True)
    ]
    again = holdfast("reissue", key, *WHY, "--yes", "--json", dsn=world.dsn).json
    second = Key.of(["reissue/v1", key, "2"]).text
    assert [each["new_key"] for each in again["reissued"]] == [second]

    world.drain()
    came = [(seen.header("webhook-id"), seen.sequence) for seen in world.receiver.seen]
    assert came == [(key, 1), (first.text, 2), (second, 3)]
    assert len({json.dumps(seen.content["data"]) for seen in world.receiver.seen}) == 1
    assert [action for action, *_ in world.db.execute(AUDIT)] == ["reissue.plan", "reissue"] * 2
    listed = holdfast("entry", "list", "--json", dsn=world.dsn).json["entries"]
    assert [row["stream"] for row in listed] == ["test.reissue", "test.reissue", "test"]


def test_reissued_dead_letter_frees_its_lane_and_comes_last(world: World) -> None:
    dead, behind = _written(world.decisions, world.dsn, "m_dead", "m_dead")
    world.write("m_dead", type_=RELEASE)
    early = world.holdfast("reissue", behind, *WHY, "--yes", code=ExitCode.FAILED)
    assert "would happen twice" in early.stderr

    planned = world.holdfast("reissue", dead, *WHY, "--yes", code=ExitCode.OK)
    assert sequences(world.db, "m_dead") == [1, 2, 3], "it is older, and one person is not enough"
    overtakes = f"it overtakes {RELEASE} of 2026-11-02T12:45:00Z in stream test"
    for words in ("will be dismissed, and its lane continues", "2 later", overtakes):
        assert words in planned.stdout, planned.stdout
    short = planned.stdout.partition("replay approve ")[2][:8]
    assert "overtakes the newest" in world.holdfast("replay", "show", short).stdout
    result = world.holdfast("replay", "apply", short, "--yes")
    assert (result.returncode, "second person" in result.stderr) == (ExitCode.FAILED, True)
    with acting_as("second"):
        assert world.holdfast("replay", "approve", short, *WHY).returncode == ExitCode.OK
    done = world.holdfast("replay", "apply", short, "--yes")
    assert (done.returncode, "resolved" in done.stdout) == (ExitCode.OK, True), done.stderr
    assert world.db.execute("SELECT resolution::text FROM holdfast.dead_letter").fetchall() == [
        ("reissued",)
    ]
    world.drain()
    new = Key.of(["reissue/v1", dead, "1"]).text
    assert [seen.sequence for seen in world.receiver.seen] == [1, 2, 3, 4]
    assert world.receiver.seen[-1].header("webhook-id") == new


def test_killed_reissue_continues_and_writes_nothing_twice(world: World) -> None:
    [key] = _written(world.decisions, world.dsn, "m_1")
    assert world.holdfast("reissue", key, *WHY, "--yes").returncode == ExitCode.OK
    world.db.execute("UPDATE holdfast.replay SET state = 'planned', finished_at = NULL")
    world.db.execute("UPDATE holdfast.replay_item SET settled_at = NULL")

    other = world.holdfast("reissue", key, *WHY, "--yes", code=ExitCode.FAILED)
    short = other.stderr.partition("replay apply ")[2][:8]
    done = world.holdfast("replay", "apply", short, "--yes")
    assert "was written before" in done.stdout, done.stderr
    world.drain()
    assert len(world.receiver.seen) == 2
    ended = world.holdfast("replay", "apply", short, "--yes")
    assert (ended.returncode, "is applied" in ended.stderr) == (ExitCode.FAILED, True)


def test_many_at_once_need_a_second_person(world: World) -> None:
    keys = _written(world.decisions, world.dsn, "m_1", "m_2")
    planned = world.holdfast("reissue", *keys, *WHY, "--limit", "1", "--json").json
    assert planned["reissued"] == []
    short = planned["replay"][:8]
    refused = world.holdfast("replay", "apply", short, "--yes")
    assert (refused.returncode, "second person" in refused.stderr) == (ExitCode.FAILED, True)
    assert f"replay approve {short}" in world.holdfast("replay", "show", short).stdout
    done = world.holdfast("replay", "approve", short, *WHY)
    assert (done.returncode, "that is you" in done.stderr) == (ExitCode.FAILED, True)

    with acting_as("second"):
        approved = world.holdfast("replay", "approve", short, *WHY)
    assert approved.returncode == ExitCode.OK, approved.stderr
    world.holdfast("replay", "apply", short, "--yes", code=ExitCode.OK)
    world.drain()
    assert len(world.receiver.seen) == 4
    texts = [(action, actor) for action, _, actor, _ in world.db.execute(AUDIT)]
    me = getpass.getuser()
    assert texts == [
        ("reissue.plan", me),
        ("reissue.approve", "second"),
        ("reissue", me),
        ("reissue", me),
    ]


def test_no_match_exits_3_and_nonsense_2(dsn: str) -> None:
    with Decisions(dsn) as decisions:
        row = decisions.row("m_1")
        decisions.write_rows([row])
    unwanted, unknown = Key.of(row["key"]).text, Key.of(["x"]).text
    for code, complaint, *arguments in (
        (ExitCode.NOTHING_MATCHED, "none ever had", unknown, *WHY, "--yes"),
        (ExitCode.NOTHING_MATCHED, "no endpoint takes", unwanted, *WHY, "--yes"),
        (ExitCode.USAGE, "is not a key", "hf_1", *WHY, "--yes"),
        (ExitCode.USAGE, "reason", unknown),
    ):
        done = holdfast("reissue", *arguments, dsn=dsn, code=code)
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


def _die_after_write(world: World, monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    """Reissue keys in a process that dies once the first is written, before that is recorded."""

    def dies(*_: object) -> None:
        raise CommandError("died", code="died")

    with monkeypatch.context() as patch:
        patch.setattr(Reissues, "settle", dies)
        assert world.holdfast("reissue", *keys, *WHY, "--yes").returncode == ExitCode.FAILED


def test_dead_reissue_is_booked_on_cancel(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [dead, key] = _written(world.decisions, world.dsn, "m_dead", "m_1")
    _die_after_write(world, monkeypatch, dead, key)
    [(short,)] = world.db.execute("SELECT left(id::text, 8) FROM holdfast.replay").fetchall()
    done = world.holdfast("replay", "cancel", short, "--reason", "it failed")
    assert "1 of 2 items done" in done.stdout, done.stderr
    new = Key.of(parts_of(Key.parse(dead), 1))
    rows = world.db.execute("SELECT resolution::text FROM holdfast.dead_letter").fetchall()
    assert rows == [("reissued",)]
    booked = [row for row in world.db.execute(AUDIT).fetchall() if row[0] == "reissue"]
    assert [(target, detail["new_key"]) for _, target, _, detail in booked] == [(dead, new.text)]
    again = world.holdfast("reissue", dead, *WHY, "--yes", "--json")
    [second] = json.loads(again.stdout)["reissued"]
    assert second["new_key"] == Key.of(parts_of(Key.parse(dead), 2)).text


def test_reissued_entry_is_not_sent_again_under_its_own_key(world: World) -> None:
    [dead, fine] = _written(world.decisions, world.dsn, "m_dead", "m_1")
    for key in (dead, fine):
        assert world.holdfast("reissue", key, *WHY, "--yes").returncode == ExitCode.OK
    world.drain()
    refused = world.holdfast("redeliver", dead, *WHY, "--yes", code=ExitCode.NOTHING_MATCHED)
    assert f"was reissued as {Key.of(parts_of(Key.parse(dead), 1)).text}" in refused.stderr
    done = world.holdfast("redeliver", dead, fine, *WHY, "--yes", "--json", code=ExitCode.OK)
    data = done.json
    assert [item["key"] for item in data["items"]] == [fine]
    [left] = data["nothing"]
    assert left["key"] == dead
    assert f"was reissued as {Key.of(parts_of(Key.parse(dead), 1)).text}" in left["why"]
    world.drain()
    assert [seen.header("webhook-id") for seen in world.receiver.seen].count(dead) == 1


def test_dead_reissue_keeps_its_old_key_from_being_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    [dead] = _written(world.decisions, world.dsn, "m_dead")
    with Replays.connect(world.dsn) as replays:
        plan = replays.plan(ReplayFilter(keys=(Key.parse(dead).digest,)), reason="a test")
        _die_after_write(world, monkeypatch, dead)
        with raises_code("plan_outdated"):
            replays.apply(plan["id"])
    refused = world.holdfast("redeliver", dead, *WHY, "--yes", code=ExitCode.NOTHING_MATCHED)
    assert f"was reissued as {Key.of(parts_of(Key.parse(dead), 1)).text}" in refused.stderr
    world.drain()
    assert [seen.header("webhook-id") for seen in world.receiver.seen] == [dead]


def test_reissue_is_judged_again_where_it_is_written(world: World) -> None:
    [key] = _written(world.decisions, world.dsn, "m_1")
    with Reissues.connect(world.dsn) as store:
        plan = store.plan([store.preview(Key.parse(key))], "a test")
        assert not store.waits(plan)
        world.write("m_1", type_=RELEASE)
        with raises_code("would_overtake"):
            write_all(world.dsn, store, plan)
    assert sequences(world.db, "m_1") == [1, 2]


def test_reissue_overtakes_a_later_decision_of_the_same_time(world: World) -> None:
    rows = [decision("m_1", 1), decision("m_1", 1, RELEASE)]
    world.decisions.write_rows(rows)
    world.drain()
    block, release = (Key.of(row["key"]) for row in rows)
    with Reissues.connect(world.dsn) as store:
        assert store.preview(release)["overtakes"] is None, "it is the last word already"
        both = [store.preview(block), store.preview(release)]
        assert [each["overtakes"] and each["overtakes"]["key"] for each in both] == [
            release.text,
            None,
        ]
        plan = store.plan(both, "a test")
        assert store.waits(plan)
        with acting_as("second"):
            assert (
                holdfast("replay", "approve", plan.hex, *WHY, dsn=world.dsn).returncode
                == ExitCode.OK
            )
        assert [each["key"] for each in write_all(world.dsn, store, plan)] == [
            block.text,
            release.text,
        ]


def test_each_key_is_checked_right_before_its_write(world: World) -> None:
    keys = [Key.parse(each) for each in _written(world.decisions, world.dsn, "m_1", "m_2", "m_3")]
    with Reissues.connect(world.dsn) as store:
        plan = store.plan([store.preview(each) for each in keys], "a test", needs_approval=False)
        first, second, third = store.left(plan)
        with store.lock_item(plan, first) as mine:
            free = world.db.execute("SELECT pg_try_advisory_xact_lock(hashtext('holdfast.replay'))")
            assert (mine, free.fetchone()) == (True, (False,))
        world.holdfast("redeliver", keys[1].text, *WHY, "--yes", code=ExitCode.OK)
        with raises_code("replay_in_progress"), store.lock_item(plan, second):
            pytest.fail("the action would happen twice")
        short = plan.hex[:8]
        assert world.holdfast("replay", "cancel", short, *WHY).returncode == ExitCode.OK
        with raises_code("replay_not_open"), store.lock_item(plan, third):
            pytest.fail("nothing of what was cancelled is begun any more")


def test_parallel_applies_report_each_reissue_once(world: World) -> None:
    keys = _written(world.decisions, world.dsn, *(f"m_{number}" for number in range(8)))
    with Reissues.connect(world.dsn) as store:
        id_ = store.plan([store.preview(Key.parse(key)) for key in keys], "the bank lost them")
    start = Barrier(4)

    def apply(_: int) -> list[str]:
        with Reissues.connect(world.dsn) as store:
            start.wait(60)
            try:
                return [each["key"] for each in write_all(world.dsn, store, id_)]
            except CommandError:
                return []  # it came when all was written

    with ThreadPoolExecutor(4) as threads:
        reported = [key for keys in threads.map(apply, range(4)) for key in keys]
    assert sorted(reported) == sorted(keys)
    new = "SELECT count(*) FROM holdfast.batch WHERE stream = 'test.reissue'"
    assert world.db.execute(new).fetchone() == (8,)
