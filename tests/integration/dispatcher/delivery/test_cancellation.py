"""An entry that a person cancels before it leaves, with real dispatchers, operators, receivers."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.values import ClaimRequest, Lane
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.cancellations.store import Cancellations
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.subjects.store import Subjects
from holdfast.dispatcher.operators.why.rules import Verdict
from holdfast.dispatcher.operators.why.store import Why
from holdfast.receiver import Secret
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.store.test_store import judged
from tests.support.dispatch.delivery import DELIVERED, age, applied
from tests.support.dispatch.sender import BLOCK, RELEASE, secret_text
from tests.support.dispatch.webhooks import Gate, answer
from tests.support.receivers.sound import SoundReceiver, WaitsForGaps, serving
from tests.support.refusal import raises_code
from tests.support.waiting import eventually
from tests.support.world import World

LANE = """
    SELECT delivered_sequence, last_sequence, routed_sequence, cancelled, due_at IS NOT NULL
    FROM holdfast.lane
"""


def key(world: World, sequence: int, subject: str = "m_1") -> Key:
    query = """
        SELECT e.key FROM holdfast.entry e JOIN holdfast.subject s ON s.id = e.subject_id
        WHERE s.name = %s AND e.sequence = %s
    """
    return Key(world.value(query, subject, sequence))


def cancel(world: World, sequence: int, subject: str = "m_1", endpoint: str | None = None) -> Row:
    wanted = key(world, sequence, subject)
    with Entries.connect(world.dsn) as store:
        entry = store.entry(wanted)
        return store.beside(Cancellations).cancel(wanted, entry, endpoint, "decided in error")


def seen(world: World, subject: str = "m_1") -> list[int]:
    return [each.sequence for each in world.receiver.seen if each.subject == subject]


def verdicts(world: World, sequence: int) -> dict[str, Verdict]:
    with Why.connect(world.dsn) as store:
        explained = store.explain_key(key(world, sequence), "")
    return {each.endpoint: each.answer.verdict for each in explained.at_endpoints}


async def claimed(store: PostgresStore, endpoint_id: int, entries: int = 8) -> list[Lane]:
    claim = await store.claim(ClaimRequest({endpoint_id: 100}, uuid4(), 30, entries), 0)
    return list(claim.lanes)


@pytest.mark.parametrize("types", [[], [BLOCK]])
@pytest.mark.parametrize("is_routed", [True, False])
def test_cancelled_entry_is_sent_nowhere_and_the_rest_in_order(
    world: World, types: list[str], *, is_routed: bool
) -> None:
    gone = {f"m_{n}": {m for m in range(1, 5) if 1 << m & n << 1} for n in range(16)}
    world.endpoint(types=types)
    world.write(*[subject for subject in gone for _ in range(2)])
    world.write(*[subject for subject in gone for _ in range(2)])
    if is_routed:
        asyncio.run(_routed(world))
    for subject, sequences in gone.items():
        for sequence in sorted(sequences, reverse=True):
            assert cancel(world, sequence, subject)["not_sent_to"] == ["payouts"]
    world.drain()
    for subject, sequences in gone.items():
        assert seen(world, subject) == [n for n in range(1, 5) if n not in sequences]
    world.write(*gone)
    world.drain()
    assert {tuple(seen(world, subject)[-1:]) for subject in gone} == {(5,)}
    assert {*world.db.execute(LANE).fetchall()} == {(5, 5, None, None, False)}
    world.check()


async def _routed(world: World) -> None:
    store = PostgresStore(world.dsn)
    await store.open()
    await store.route(16)
    await store.close()


def test_cancelled_behind_a_head_is_not_in_the_claim_of_it(world: World) -> None:
    world.endpoint(schedule_seconds=[3600])
    world.receiver.script = lambda _: answer(500)
    world.write("m_1", "m_1", "m_1")
    world.drain()
    cancel(world, 2)
    assert world.db.execute(LANE).fetchall() == [(0, 1, 3, [2], True)]
    assert verdicts(world, 3) == {"payouts": Verdict.BEHIND}
    with Subjects.connect(world.dsn) as store:
        (lane,) = store.subject("m_1")["lanes"]
        ((row,), _) = store.subjects(_any(), limit=2)
    assert (lane["waiting"], lane["last_sequence"], row["undelivered"]) == (2, 3, 3)
    world.receiver.script = lambda _: answer(200)
    world.make_due()
    world.drain()
    assert seen(world) == [1, 1, 3]
    world.check()


def _any() -> object:
    from holdfast.dispatcher.operators.subjects.store import SubjectFilter

    return SubjectFilter()


def test_cancelled_behind_a_dead_letter_waits_for_its_dismissal(world: World) -> None:
    world.endpoint()
    world.receiver.script = lambda _: answer(422)
    world.write("m_1", "m_1", "m_1")
    world.drain()
    cancel(world, 2)
    world.receiver.script = lambda _: answer(200)
    world.drain()
    assert seen(world) == [1]
    number = str(world.value("SELECT id FROM holdfast.dead_letter"))
    world.holdfast("dead-letter", "dismiss", number, "--skip", "--reason", "x", code=ExitCode.OK)
    world.drain()
    assert seen(world) == [1, 3]
    world.check()


@pytest.mark.parametrize("outcome", [200, 500])
def test_entry_that_was_begun_is_not_cancelled(world: World, outcome: int) -> None:
    world.add_endpoint(schedule_seconds=[3600])
    world.receiver.script = lambda _: answer(outcome)
    world.write("m_1")
    world.drain()
    with pytest.raises(CommandError, match="holdfast subject hold --endpoint payouts") as refused:
        cancel(world, 1)
    assert refused.value.code == "delivery_begun"
    assert world.value("SELECT count(*) FROM holdfast.cancellation") == 0
    assert world.value("SELECT count(*) FROM holdfast.operator_action") == 0


def test_entry_on_its_way_is_not_cancelled(world: World) -> None:
    world.endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _: gate
    world.write("m_1", "m_1")
    with world.dispatching("--lease-seconds", "60") as process:
        process.until(lambda: seen(world) == [1])
        for sequence in (1, 2):
            with raises_code("delivery_begun"):
                cancel(world, sequence)
        world.write("m_1")
        process.until(lambda: world.lanes()["m_1"].last == 3)
        cancel(world, 3)
        gate.open()
        process.until(lambda: world.lanes()["m_1"][:2] == (3, 3))
    assert seen(world) == [1, 2]
    world.check()


def test_entry_of_a_dispatcher_that_died_is_not_cancelled(world: World) -> None:
    """It may have left: only the rescue records that."""
    world.add_endpoint()
    world.write("m_1", "m_1")
    with world.dispatching(failpoints="D2=exit") as process:
        process.process.wait()
    world.expire_leases()
    with raises_code("delivery_begun"):
        cancel(world, 2)
    world.drain()
    with raises_code("delivery_begun"):
        cancel(world, 2)


def test_one_endpoint_goes_without_and_the_others_do_not(world: World) -> None:
    world.add_endpoint(name="a")
    world.add_endpoint(name="b")
    world.write("m_1", "m_1")
    cancel(world, 2, endpoint="b")
    world.drain()
    assert sorted(seen(world)) == [1, 1, 2]
    assert verdicts(world, 2) == {"a": Verdict.DELIVERED, "b": Verdict.CANCELLED}
    with raises_code("delivery_begun"):
        cancel(world, 2)
    with raises_code("already_cancelled"):
        cancel(world, 2, endpoint="b")
    with raises_code("unknown_endpoint"):
        cancel(world, 2, endpoint="c")
    with Entries.connect(world.dsn) as store:
        stages = [each["state"] for each in store.entry(key(world, 2))["delivery"]]
    assert stages == ["delivered", "cancelled"]


def test_cancelled_one_after_the_other_is_cancelled_at_all(world: World) -> None:
    world.add_endpoint(name="a")
    world.add_endpoint(name="b", types=[RELEASE])
    world.write("m_1")
    cancel(world, 1, endpoint="a")
    with raises_code("not_taken"):
        cancel(world, 1, endpoint="b")
    assert cancel(world, 1)["not_sent_to"] == ["a"]
    with raises_code("already_cancelled"):
        cancel(world, 1, endpoint="b")
    world.drain()
    assert seen(world) == []


def test_endpoint_added_later_does_not_get_it_either(world: World) -> None:
    world.write("m_1", "m_1", "m_1")
    cancel(world, 1)
    cancel(world, 3)
    world.add_endpoint()
    with Endpoints.connect(world.dsn) as store:
        store.backfill("payouts")
    world.drain()
    assert seen(world) == [2]
    world.add_endpoint(name="later")
    with Endpoints.connect(world.dsn) as store:
        store.backfill("later")
    world.drain()
    assert seen(world) == [2, 2]
    assert verdicts(world, 3) == {"later": Verdict.CANCELLED, "payouts": Verdict.CANCELLED}


def test_endpoint_that_takes_more_types_later_does_not_get_it(world: World) -> None:
    world.add_endpoint(types=[RELEASE])
    world.receiver.script = lambda _: answer(500)
    row = world.decisions.row
    world.decisions.write_rows([row("m_1", type_) for type_ in (RELEASE, BLOCK, BLOCK, RELEASE)])
    asyncio.run(_routed(world))
    cancel(world, 2)
    with Endpoints.connect(world.dsn) as store:
        store.set_endpoint_state("payouts", "paused", "test")
        store.set_endpoint("payouts", lambda it: {**it, "types": [RELEASE, BLOCK]}, "test")
        store.set_endpoint_state("payouts", "active", "test")
    world.receiver.script = lambda _: answer(200)
    world.drain()
    assert 2 not in seen(world)
    assert seen(world)[-1] == 4


def test_no_replay_sends_a_cancelled_key(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_1", "m_1")
    cancel(world, 2)
    world.drain()
    wanted = key(world, 2)
    with Replays.connect(world.dsn) as store, raises_code("entry_cancelled"):
        store.plan(ReplayFilter(keys=(wanted.digest,)), reason="a test")
    applied(world.dsn, ReplayFilter(subject="m_1"))
    world.drain()
    applied(world.dsn, ReplayFilter(keys=(wanted.digest, key(world, 1).digest)))
    world.drain()
    assert seen(world) == [1, 3, 1, 3, 1]
    done = world.holdfast("redeliver", wanted.text, "--reason", "x", "--yes", code=3)
    assert "reissue" in done.stderr


def test_plan_of_older_code_does_not_send_a_cancelled_key(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_1")
    cancel(world, 1)
    world.drain()
    applied(world.dsn, DELIVERED)
    world.db.execute("""
        INSERT INTO holdfast.replay_item
            (replay_id, endpoint_id, subject_id, sequence, created_at, key, kind, place)
        SELECT r.id, p.id, e.subject_id, e.sequence, e.created_at, e.key, 'resend', 2
        FROM holdfast.replay r, holdfast.endpoint p, holdfast.entry e WHERE e.sequence = 1
    """)
    world.drain()
    assert seen(world) == [2, 2]
    detail = "SELECT detail FROM holdfast.replay_item WHERE sequence = 1 AND settled_at IS NOT NULL"
    assert world.value(detail) == "not sent: it is cancelled"


def test_reissue_decides_a_cancelled_entry_again(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    cancel(world, 1)
    world.drain()
    done = world.holdfast("reissue", key(world, 1).text, "--reason", "after all", "--yes", code=0)
    assert "hf_" in done.stdout
    world.drain()
    assert seen(world) == [2]


def test_planned_replay_has_to_be_cancelled_first(world: World) -> None:
    """As where the lane has passed an entry that the endpoint takes only since then."""
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    with Replays.connect(world.dsn) as store:
        id_ = store.plan(DELIVERED, reason="a test")["id"]
    world.db.execute("TRUNCATE holdfast.attempt")
    with pytest.raises(CommandError, match=f"replay cancel {id_.hex[:8]}"):
        cancel(world, 1)


@pytest.mark.parametrize("strict", [False, True])
def test_receiver_meets_a_gap_that_it_must_not_wait_for(world: World, *, strict: bool) -> None:
    """The one that waits for it violates a rule of `conform`: order.gap."""
    secret = Secret.parse(secret_text())
    receiver = WaitsForGaps(secret) if strict else SoundReceiver(secret)
    with serving(receiver) as url:
        world.endpoint(f"{url}/hooks", schedule_seconds=[3600])
        world.write("m_1", "m_1", "m_1")
        keys = [key(world, n).text for n in (1, 2, 3)]
        cancel(world, 2)
        world.drain()
    assert [receiver.applied[each] for each in keys] == [1, 0, 0 if strict else 1]
    assert world.lanes()["m_1"][:2] == (2 if strict else 3, 3)


# Races.


def test_cancel_waits_for_a_claim_that_came_first(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    with world.dispatching(failpoints="D2=exit") as process:
        process.process.wait()
    world.db.execute("UPDATE holdfast.lane SET token = NULL, lease_until = NULL, due_at = now()")
    with psycopg.connect(world.dsn) as claiming, ThreadPoolExecutor() as threads:
        claiming.execute("SELECT FROM holdfast.lane FOR NO KEY UPDATE")
        asked = threads.submit(cancel, world, 1)
        _blocked(world)
        claiming.execute(
            "UPDATE holdfast.lane SET token = gen_random_uuid(), lease_until = now() + '1 min',"
            " claimed_sequence = 1, attempt = 1"
        )
        claiming.commit()
        assert getattr(asked.exception(), "code", None) == "delivery_begun"


async def test_claim_passes_over_what_is_being_cancelled(
    world: World, store: PostgresStore
) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_1", "m_2")
    with psycopg.connect(world.dsn) as cancelling:
        cancelling.execute("SELECT FROM holdfast.lane WHERE subject_id = 1 FOR NO KEY UPDATE")
        (other,) = await claimed(store, endpoint_id)
        cancelling.execute("UPDATE holdfast.lane SET cancelled = '{1}' WHERE subject_id = 1")
        cancelling.commit()
    (lane,) = await claimed(store, endpoint_id)
    assert [entry.sequence for entry in lane.entries] == [2]
    assert other.subject_id != lane.subject_id
    await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    assert world.lanes()["m_1"][:2] == (2, 2)


async def test_lease_that_settles_meets_what_was_cancelled(
    world: World, store: PostgresStore
) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_1", "m_1", "m_1")
    (lane,) = await claimed(store, endpoint_id, entries=1)
    await asyncio.to_thread(cancel, world, 2)
    await asyncio.to_thread(cancel, world, 4)
    await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    assert world.db.execute(LANE).fetchall() == [(2, 3, 4, [4], True)]
    (lane,) = await claimed(store, endpoint_id)
    assert [(entry.sequence, entry.number) for entry in lane.entries] == [(3, 1)]
    await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    assert world.db.execute(LANE).fetchall() == [(4, 4, None, None, False)]


def test_routing_waits_for_a_cancellation_and_keeps_it(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_1")
    with psycopg.connect(world.dsn) as cancelling, ThreadPoolExecutor() as threads:
        cancelling.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.route'))")
        cancelling.execute("""
            INSERT INTO holdfast.cancellation (subject_id, sequence, key, cancelled_by, reason)
            SELECT subject_id, sequence, key, 'a', 'b' FROM holdfast.entry WHERE sequence = 1
        """)
        routing = threads.submit(asyncio.run, _routed(world))
        _blocked(world)
        cancelling.commit()
        routing.result()
    assert world.db.execute(LANE).fetchall() == [(1, 2, None, None, True)]


def test_backfill_waits_for_a_cancellation_and_keeps_it(world: World) -> None:
    """It creates lanes in a transaction that does not exclude routing."""
    world.write("m_1", "m_1")
    world.add_endpoint()
    asyncio.run(_routed(world))
    world.db.execute("DELETE FROM holdfast.lane")
    with psycopg.connect(world.dsn) as cancelling, ThreadPoolExecutor() as threads:
        cancelling.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.route'))")
        cancelling.execute("""
            INSERT INTO holdfast.cancellation (subject_id, sequence, key, cancelled_by, reason)
            SELECT subject_id, sequence, key, 'a', 'b' FROM holdfast.entry WHERE sequence = 1
        """)
        filling = threads.submit(_backfill, world)
        _blocked(world)
        cancelling.commit()
        filling.result()
    world.drain()
    assert seen(world) == [2]


def _backfill(world: World) -> None:
    with Endpoints.connect(world.dsn) as store:
        store.backfill("payouts")


def _blocked(world: World) -> None:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    eventually(lambda: world.value(waits) > 0)


def test_two_operators_at_once_make_one_cancellation(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(cancel, world, 1) for _ in range(2)]
    codes = {getattr(each.exception(), "code", None) for each in both}
    assert codes == {None, "already_cancelled"}
    assert world.value("SELECT count(*) FROM holdfast.operator_action") == 1


def test_answered_cancellation_sends_nothing_while_claims_race(world: World) -> None:
    """Each decision is either cancelled and never sent, or refused and sent."""
    world.endpoint()
    gone, count = set(), 9
    with (
        world.dispatching() as first,
        world.dispatching() as second,
        Entries.connect(world.dsn) as store,
    ):
        first.says("dispatcher.started")
        second.says("dispatcher.started")
        for last in range(count, 10 * count + 1, count):
            # One more than a claim takes: the last one waits for the next claim.
            world.write(*["m_1"] * count)
            wanted = key(world, last)
            with suppress(CommandError):
                cancellations = store.beside(Cancellations)
                cancellations.cancel(wanted, store.entry(wanted), None, "decided in error")
                gone.add(last)
        end = (10 * count, 10 * count)
        first.until(lambda: [each[:2] for each in world.lanes().values()] == [end])
        second.until(lambda: world.lanes()["m_1"].token is None)
    assert seen(world) == [n for n in range(1, 10 * count + 1) if n not in gone]
    assert gone
    world.check()


def test_held_and_cancelled_subject_sends_the_rest_after_it(world: World) -> None:
    world.endpoint()
    world.write("m_1")
    world.drain()
    hold = ("subject", "hold", "m_1", "--endpoint", "payouts", "--reason", "x")
    world.holdfast(*hold, code=ExitCode.OK)
    world.write("m_1", "m_1")
    world.drain()
    cancel(world, 2)
    assert world.value("SELECT due_at >= '9999-01-01' FROM holdfast.lane") is True
    world.drain()
    assert seen(world) == [1]
    resume = ("subject", "resume", "m_1", "--endpoint", "payouts", "--reason", "x")
    world.holdfast(*resume, code=ExitCode.OK)
    world.drain()
    assert seen(world) == [1, 3]
    world.check()


# What people see.


def test_commands_show_who_cancelled_and_why(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_1")
    text = key(world, 1).text
    asked = ("entry", "cancel", text, "--reason", "decided in error")
    preview = world.holdfast(*asked, "--dry-run", code=ExitCode.OK).stdout
    assert "sequence 1 is never sent, neither to payouts nor to a later one" in preview
    assert world.value("SELECT count(*) FROM holdfast.cancellation") == 0
    world.holdfast(*asked, "--yes", code=ExitCode.OK)
    again = world.holdfast(*asked, "--yes", code=ExitCode.NOTHING_MATCHED)
    assert "is cancelled at all endpoints since" in again.stderr
    world.drain()
    why = world.holdfast("why", text, code=ExitCode.OK).stdout
    assert "cancelled it at all endpoints" in why
    assert "decided in error" in why
    assert "decided in error" in world.holdfast("entry", "show", text, code=ExitCode.OK).stdout
    listed = world.holdfast("audit", "list", "--action", "entry.cancel", code=ExitCode.OK).stdout
    assert text in listed.replace("\n", "") or "entry.cancel" in listed


def test_check_finds_what_was_cancelled_and_is_sent(world: World) -> None:
    world.add_endpoint()
    world.db.execute(
        "INSERT INTO holdfast.operator_action (acted_at, actor, action, target, reason)"
        " SELECT created_at, 'a', 'endpoint.add', name, 'a test' FROM holdfast.endpoint"
    )
    world.write("m_1", "m_1", "m_1", "m_1")
    asyncio.run(_routed(world))
    cancel(world, 2)
    cancel(world, 4)
    world.holdfast("check", code=ExitCode.OK)
    world.db.execute("UPDATE holdfast.lane SET cancelled = NULL")
    assert "cancelled_waits" in world.holdfast("check").stdout
    world.drain()
    world.db.execute("DELETE FROM holdfast.operator_action WHERE action = 'entry.cancel'")
    found = world.holdfast("check").stdout
    assert "cancelled_sent" in found
    assert "unaudited" in found
    assert "passed_undelivered" not in found


def test_cancelled_entry_keeps_no_day_and_is_explained_after_it(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_1")
    cancel(world, 2)
    world.drain()
    text = key(world, 2)
    age(world.db, 10)
    done = world.holdfast("db", "prune", "--older-than", "5d", "--reason", "x")
    assert world.value("SELECT count(*) FROM holdfast.entry") == 0, done.stderr
    with Why.connect(world.dsn) as store:
        explained = store.explain_key(text, "")
    assert explained.answer is not None
    assert "had cancelled it" in explained.answer.sentence


@pytest.mark.rest
def test_older_schema_delivers_and_is_not_reached_while_one_waits(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_1", "m_1")
    asyncio.run(_routed(world))
    cancel(world, 1)
    cancel(world, 3)
    downgrade = ("db", "downgrade", "0037", "--reason", "a test", "--yes")
    refused = world.holdfast(*downgrade, code=ExitCode.FAILED)
    assert "1 entry is cancelled and not passed yet" in refused.stderr
    world.drain()
    world.write("m_1")
    cancel(world, 4)
    refused = world.holdfast(*downgrade, code=ExitCode.FAILED)
    assert "1 entry is cancelled and not passed yet" in refused.stderr
    world.drain()
    world.holdfast(*downgrade, code=ExitCode.OK)
    world.write("m_1")
    world.drain()
    applied(world.dsn, DELIVERED)
    world.drain()
    assert seen(world) == [2, 5, 2, 5]
    with raises_code("database_outdated"):
        cancel(world, 5)
    assert verdicts(world, 5) == {"payouts": Verdict.DELIVERED}
    world.holdfast("check")
