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
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.entries import RELEASE, decision
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.job.outbox import sequences

pytestmark = pytest.mark.rest

WHY = ("--reason", "the bank lost it")
AUDIT = "SELECT action, target, actor, detail FROM holdfast.operator_action ORDER BY id"
LINKS = """
    SELECT y.state::text, i.key, i.new_key, i.settled_at IS NOT NULL
    FROM holdfast.replay y JOIN holdfast.replay_item i ON i.replay_id = y.id ORDER BY y.created_at
"""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookReceiver]:
    """Rejects the first that m_dead has, and takes everything else."""
    monkeypatch.setenv(SECRET, secret_text())
    with webhooks.listening() as receiver:
        receiver.script = lambda seen: answer(
            400 if seen.subject == "m_dead" and seen.sequence == 1 else 200
        )
        yield receiver


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


def test_action_is_repeated_under_a_new_key_each_time_that_somebody_says_so(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    [key] = _written(decisions, dsn, "m_1")
    unasked = holdfast("reissue", key, *WHY, dsn=dsn)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (ExitCode.USAGE, True)
    assert db.execute(LINKS).fetchall() == []

    done = holdfast("reissue", key, *WHY, "--yes", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    for words in ("repeats the business action", "m_1", "8500000", "delivered at", "for payouts"):
        assert words in done.stdout, done.stdout
    first = Key.of(["reissue/v1", key, "1"])
    assert db.execute(LINKS).fetchall() == [("applied", Key.parse(key).digest, first.digest, True)]
    again = json.loads(holdfast("reissue", key, *WHY, "--yes", "--json", dsn=dsn).stdout)
    second = Key.of(["reissue/v1", key, "2"]).text
    assert [each["new_key"] for each in again["reissued"]] == [second]

    drain(dsn)
    came = [(seen.header("webhook-id"), seen.sequence) for seen in receiver.seen]
    assert came == [(key, 1), (first.text, 2), (second, 3)]
    assert len({json.dumps(seen.content["data"]) for seen in receiver.seen}) == 1
    assert [action for action, *_ in db.execute(AUDIT)] == ["reissue.plan", "reissue"] * 2
    listed = json.loads(holdfast("entries", "list", "--json", dsn=dsn).stdout)["entries"]
    assert [row["stream"] for row in listed] == ["test.reissue", "test.reissue", "test"]


def test_dead_one_is_given_up_its_lane_goes_on_and_the_new_one_comes_last(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    dead, behind = _written(decisions, dsn, "m_dead", "m_dead")
    decisions.write("m_dead", type_=RELEASE)
    early = holdfast("reissue", behind, *WHY, "--yes", dsn=dsn)
    assert early.returncode == ExitCode.FAILED
    assert "would happen twice" in early.stderr

    planned = holdfast("reissue", dead, *WHY, "--yes", dsn=dsn)
    assert planned.returncode == ExitCode.OK, planned.stderr
    assert sequences(db, "m_dead") == [1, 2, 3], "it is older, and one person is not enough"
    overtakes = f"it overtakes {RELEASE} of 2026-11-02T12:45:00Z in stream test"
    for words in ("will be dismissed, and its lane continues", "2 later", overtakes):
        assert words in planned.stdout, planned.stdout
    short = planned.stdout.partition("replay approve ")[2][:8]
    assert "overtakes the newest" in holdfast("replay", "show", short, dsn=dsn).stdout
    alone = holdfast("replay", "apply", short, "--yes", dsn=dsn)
    assert (alone.returncode, "second person" in alone.stderr) == (ExitCode.FAILED, True)
    with acting_as("second"):
        assert holdfast("replay", "approve", short, *WHY, dsn=dsn).returncode == ExitCode.OK
    done = holdfast("replay", "apply", short, "--yes", dsn=dsn)
    assert (done.returncode, "resolved" in done.stdout) == (ExitCode.OK, True), done.stderr
    assert db.execute("SELECT resolution::text FROM holdfast.dead_letter").fetchall() == [
        ("reissued",)
    ]
    drain(dsn)
    new = Key.of(["reissue/v1", dead, "1"]).text
    assert [seen.sequence for seen in receiver.seen] == [1, 2, 3, 4]
    assert receiver.seen[-1].header("webhook-id") == new


def test_reissue_that_died_half_way_goes_on_and_writes_nothing_twice(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    [key] = _written(decisions, dsn, "m_1")
    assert holdfast("reissue", key, *WHY, "--yes", dsn=dsn).returncode == ExitCode.OK
    db.execute("UPDATE holdfast.replay SET state = 'planned', finished_at = NULL")
    db.execute("UPDATE holdfast.replay_item SET settled_at = NULL")

    other = holdfast("reissue", key, *WHY, "--yes", dsn=dsn)
    assert other.returncode == ExitCode.FAILED
    short = other.stderr.partition("replay apply ")[2][:8]
    done = holdfast("replay", "apply", short, "--yes", dsn=dsn)
    assert "was written before" in done.stdout, done.stderr
    drain(dsn)
    assert len(receiver.seen) == 2
    ended = holdfast("replay", "apply", short, "--yes", dsn=dsn)
    assert (ended.returncode, "is applied" in ended.stderr) == (ExitCode.FAILED, True)


def test_many_at_once_need_a_second_person(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    keys = _written(decisions, dsn, "m_1", "m_2")
    planned = json.loads(holdfast("reissue", *keys, *WHY, "--limit", "1", "--json", dsn=dsn).stdout)
    assert planned["reissued"] == []
    short = planned["replay"][:8]
    refused = holdfast("replay", "apply", short, "--yes", dsn=dsn)
    assert (refused.returncode, "second person" in refused.stderr) == (ExitCode.FAILED, True)
    assert f"replay approve {short}" in holdfast("replay", "show", short, dsn=dsn).stdout
    alone = holdfast("replay", "approve", short, *WHY, dsn=dsn)
    assert (alone.returncode, "that is you" in alone.stderr) == (ExitCode.FAILED, True)

    with acting_as("second"):
        approved = holdfast("replay", "approve", short, *WHY, dsn=dsn)
    assert approved.returncode == ExitCode.OK, approved.stderr
    done = holdfast("replay", "apply", short, "--yes", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    drain(dsn)
    assert len(receiver.seen) == 4
    said = [(action, actor) for action, _, actor, _ in db.execute(AUDIT)]
    me = getpass.getuser()
    assert said == [
        ("reissue.plan", me),
        ("reissue.approve", "second"),
        ("reissue", me),
        ("reissue", me),
    ]


def test_what_nothing_matches_is_exit_code_3_and_what_makes_no_sense_is_2(dsn: str) -> None:
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
        done = holdfast("reissue", *arguments, dsn=dsn)
        assert done.returncode == code, done.stderr
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


def test_reissue_that_died_before_it_booked_is_booked_when_it_is_cancelled(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [dead, key] = _written(decisions, dsn, "m_dead", "m_1")

    def dies(*_: object) -> None:
        raise CommandError("died")

    with monkeypatch.context() as patch:
        patch.setattr(Reissues, "settle", dies)
        assert holdfast("reissue", dead, key, *WHY, "--yes", dsn=dsn).returncode == ExitCode.FAILED
    [(short,)] = db.execute("SELECT left(id::text, 8) FROM holdfast.replay").fetchall()
    done = holdfast("replay", "cancel", short, "--reason", "it failed", dsn=dsn)
    assert "1 of 2 items done" in done.stdout, done.stderr
    new = Key.of(parts_of(Key.parse(dead), 1))
    found = db.execute("SELECT resolution::text FROM holdfast.dead_letter").fetchall()
    assert found == [("reissued",)]
    booked = [row for row in db.execute(AUDIT).fetchall() if row[0] == "reissue"]
    assert [(target, detail["new_key"]) for _, target, _, detail in booked] == [(dead, new.text)]
    again = holdfast("reissue", dead, *WHY, "--yes", "--json", dsn=dsn)
    [second] = json.loads(again.stdout)["reissued"]
    assert second["new_key"] == Key.of(parts_of(Key.parse(dead), 2)).text


def test_what_never_arrived_and_was_reissued_is_not_sent_again_under_its_own_key(
    dsn: str, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    [dead, fine] = _written(decisions, dsn, "m_dead", "m_1")
    for key in (dead, fine):
        assert holdfast("reissue", key, *WHY, "--yes", dsn=dsn).returncode == ExitCode.OK
    drain(dsn)
    refused = holdfast("redeliver", dead, *WHY, "--yes", dsn=dsn)
    assert refused.returncode == ExitCode.NOTHING_MATCHED
    assert f"was reissued as {Key.of(parts_of(Key.parse(dead), 1)).text}" in refused.stderr
    done = holdfast("redeliver", dead, fine, *WHY, "--yes", "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    said = json.loads(done.stdout)
    assert [item["key"] for item in said["items"]] == [fine]
    [left] = said["nothing"]
    assert left["key"] == dead
    assert f"was reissued as {Key.of(parts_of(Key.parse(dead), 1)).text}" in left["why"]
    drain(dsn)
    assert [seen.header("webhook-id") for seen in receiver.seen].count(dead) == 1


def test_reissue_is_judged_again_where_it_is_written(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    [key] = _written(decisions, dsn, "m_1")
    with Reissues.connect(dsn) as store:
        plan = store.plan([store.preview(Key.parse(key))], "a test")
        assert not store.waits(plan)
        decisions.write("m_1", type_=RELEASE)
        with pytest.raises(CommandError, match="would overtake"):
            write_all(dsn, store, plan)
    assert sequences(db, "m_1") == [1, 2]


def test_reissue_overtakes_a_later_decision_of_the_same_time(
    dsn: str, decisions: Decisions
) -> None:
    rows = [decision("m_1", 1), decision("m_1", 1, RELEASE)]
    decisions.write_rows(rows)
    drain(dsn)
    block, release = (Key.of(row["key"]) for row in rows)
    with Reissues.connect(dsn) as store:
        assert store.preview(release)["overtakes"] is None, "it is the last word already"
        both = [store.preview(block), store.preview(release)]
        assert [each["overtakes"] and each["overtakes"]["key"] for each in both] == [
            release.text,
            None,
        ]
        plan = store.plan(both, "a test")
        assert store.waits(plan)
        with acting_as("second"):
            assert holdfast("replay", "approve", plan.hex, *WHY, dsn=dsn).returncode == ExitCode.OK
        assert [each["key"] for each in write_all(dsn, store, plan)] == [block.text, release.text]


def test_each_key_is_looked_at_again_right_before_it_is_written_and_nobody_replays_meanwhile(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    keys = [Key.parse(each) for each in _written(decisions, dsn, "m_1", "m_2", "m_3")]
    with Reissues.connect(dsn) as store:
        plan = store.plan([store.preview(each) for each in keys], "a test", needs_approval=False)
        first, second, third = store.left(plan)
        with store.alone(plan, first) as mine:
            free = db.execute("SELECT pg_try_advisory_xact_lock(hashtext('holdfast.replay'))")
            assert (mine, free.fetchone()) == (True, (False,))
        done = holdfast("redeliver", keys[1].text, *WHY, "--yes", dsn=dsn)
        assert done.returncode == ExitCode.OK, done.stderr
        with pytest.raises(CommandError, match="is being sent again"), store.alone(plan, second):
            pytest.fail("the action would happen twice")
        short = plan.hex[:8]
        assert holdfast("replay", "cancel", short, *WHY, dsn=dsn).returncode == ExitCode.OK
        with pytest.raises(CommandError, match="is cancelled"), store.alone(plan, third):
            pytest.fail("nothing of what was cancelled is begun any more")


def test_parallel_applies_report_each_reissue_once(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    keys = _written(decisions, dsn, *(f"m_{number}" for number in range(8)))
    with Reissues.connect(dsn) as store:
        id_ = store.plan([store.preview(Key.parse(key)) for key in keys], "the bank lost them")
    start = Barrier(4)

    def apply(_: int) -> list[str]:
        with Reissues.connect(dsn) as store:
            start.wait(60)
            try:
                return [each["key"] for each in write_all(dsn, store, id_)]
            except CommandError:
                return []  # it came when all was written

    with ThreadPoolExecutor(4) as threads:
        reported = [key for keys in threads.map(apply, range(4)) for key in keys]
    assert sorted(reported) == sorted(keys)
    new = "SELECT count(*) FROM holdfast.batch WHERE stream = 'test.reissue'"
    assert db.execute(new).fetchone() == (8,)
