"""Days made ahead and old days dropped by a dispatcher that delivers meanwhile."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
import structlog

from holdfast.dispatcher.delivery.maintenance import Maintenance
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.delivery import OLD, age, partition_days, stored
from tests.support.dispatch.dispatching import add_endpoint, dispatching, drain
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


RETAIN = 90


@pytest.fixture
def logged() -> Iterator[list[structlog.typing.EventDict]]:
    """What a dispatcher in this process logs."""
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture
def old(dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver) -> date:
    """The day, long past, of three decisions that were delivered then."""
    add_endpoint(db, receiver.url)
    decisions.write("m_1", "m_1", "m_2")
    drain(dsn)
    return age(db, OLD)


def _stored(db: psycopg.Connection) -> int:
    row = db.execute("SELECT count(*) FROM holdfast.entry").fetchone()
    return int((row or (0,))[0])


def _run(dsn: str, work: Callable[[PostgresStore], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(stored(dsn, work))


def _dropped(lines: list[structlog.typing.EventDict]) -> int:
    return sum(line["event"] == "day.dropped" for line in lines)


def test_dispatcher_drops_old_days_and_delivers_meanwhile(world: World, old: date) -> None:
    with world.dispatching("--retain", f"{RETAIN}d") as running:
        eventually(lambda: old not in partition_days(world.db, "attempt"))
        assert old not in partition_days(world.db, "entry")
        world.write("m_1", "m_2", "m_3")
        eventually(lambda: world.receiver.sequences("m_1") == [1, 2, 3])
        eventually(lambda: world.receiver.sequences("m_3") == [1])
        running.send(signal.SIGTERM)
        assert running.ends() == ExitCode.OK, running.text()
        dropped = [line for line in running.lines("day.dropped") if line["rows"]]
        assert [(line["table"], line["rows"]) for line in dropped] == [("entry", 3), ("attempt", 3)]
        (stopped,) = running.lines("dispatcher.stopped")
        assert stopped["days_dropped"] == len(running.lines("day.dropped"))
        assert running.lines("sequence_gap") == []
    audit = world.db.execute("""
        SELECT DISTINCT actor, action, reason FROM holdfast.operator_action""").fetchall()
    assert audit == [("dispatcher", "partition.drop", "retention")]


def test_nothing_is_dropped_by_default(world: World, old: date) -> None:
    world.write("m_3")
    world.drain()
    assert world.receiver.sequences("m_3") == [1]
    assert old in partition_days(world.db, "entry")
    assert _stored(world.db) == 4


@pytest.mark.parametrize("types", [[], [BLOCK]], ids=["every type", "one type"])
def test_lane_continues_after_its_days_are_gone(world: World, types: list[str]) -> None:
    world.add_endpoint(types=types)
    world.write("m_1", "m_1")
    world.drain()
    age(world.db, OLD)
    assert world.holdfast("db", "prune", "--older-than", "90d").returncode == ExitCode.OK
    assert _stored(world.db) == 0
    world.write("m_1", type_=RELEASE)
    world.write("m_1", "m_9")
    report = world.drain()
    assert report.counts.get("gaps", 0) == 0
    assert world.receiver.sequences("m_1") == ([1, 2, 4] if types else [1, 2, 3, 4])
    assert world.lanes()["m_1"][:2] == (4, 4)
    assert world.lanes()["m_9"][:2] == (1, 1)


def test_endpoint_from_the_beginning_begins_at_what_is_stored(world: World, old: date) -> None:
    assert world.holdfast("db", "prune", "--older-than", "90d").returncode == ExitCode.OK
    assert old not in partition_days(world.db, "entry")
    world.write("m_1")
    world.drain()
    world.receiver.seen.clear()
    done = world.holdfast(
        *("endpoint", "add", "second", "--url", world.receiver.url, "--secret-ref"),
        *("env:HOLDFAST_SECRET_TEST", "--allow-cidr", "127.0.0.0/8", "--from-beginning"),
    )
    assert done.returncode == ExitCode.OK, done.stderr
    report = world.drain()
    assert world.receiver.sequences("m_1") == [3]
    assert report.counts.get("gaps", 0) == 0


def test_day_with_undelivered_is_kept_and_delivered(world: World, old: date) -> None:
    world.add_endpoint(name="ledger", state="paused")
    with world.dispatching("--retain", f"{RETAIN}d") as running:
        eventually(lambda: old not in partition_days(world.db, "attempt"))
        world.write("m_3")
        eventually(lambda: world.receiver.sequences("m_3") == [1])
        (kept,) = running.lines("day.kept")
        assert (kept["table"], kept["day"]) == ("entry", old.isoformat())
        assert (kept["waiting"], kept["endpoints"], kept["level"]) == (3, ["ledger"], "warning")
    assert old in partition_days(world.db, "entry")
    assert _stored(world.db) == 4


def test_failed_maintenance_is_a_warning_and_delivery_continues(world: World, old: date) -> None:
    world.db.execute("""
        REVOKE EXECUTE ON FUNCTION
            holdfast.prune_day(text, date, integer, boolean, text, text) FROM holdfast_dispatcher
    """)
    with world.dispatching("--retain", f"{RETAIN}d") as running:
        running.says("maintenance.failed")
        world.write("m_3")
        eventually(lambda: world.receiver.sequences("m_3") == [1])
        running.send(signal.SIGTERM)
        assert running.ends() == ExitCode.OK, running.text()
        (failed,) = running.lines("maintenance.failed")
        assert "prune_day" in failed["error"]
        assert failed["level"] == "warning"
    assert old in partition_days(world.db, "entry")


def test_two_dispatchers_drop_each_day_once(world: World, old: date) -> None:
    with (
        dispatching(world.dsn, world.tmp_path / "1", "--retain", f"{RETAIN}d") as first,
        dispatching(world.dsn, world.tmp_path / "2", "--retain", f"{RETAIN}d") as second,
    ):
        eventually(lambda: first.lines("dispatcher.started") and second.lines("dispatcher.started"))
        eventually(
            lambda: (
                old not in partition_days(world.db, "entry") | partition_days(world.db, "attempt")
            )
        )
        assert first.lines("maintenance.failed") == second.lines("maintenance.failed") == []
    targets = world.db.execute("SELECT target FROM holdfast.operator_action").fetchall()
    assert len(targets) == len(set(targets))


def test_it_looks_once_a_day_and_again_after_a_restart(
    world: World, old: date, logged: list[structlog.typing.EventDict]
) -> None:
    async def work(store: PostgresStore) -> None:
        running = Maintenance(store, Telemetry(), RETAIN)
        assert not await running.step()
        assert old not in partition_days(world.db, "entry")
        world.write("m_3")
        world.db.execute("UPDATE holdfast.batch SET routed_at = now()")
        world.db.execute("UPDATE holdfast.endpoint SET state = 'disabled'")
        await asyncio.to_thread(age, world.db, OLD)
        before = _dropped(logged)
        await running.step()
        assert _dropped(logged) == before
        await Maintenance(store, Telemetry(), RETAIN).step()
        assert _dropped(logged) > before

    _run(world.dsn, work)
    assert _stored(world.db) == 0


def test_day_in_use_is_tried_again_at_the_next_look(
    world: World, old: date, logged: list[structlog.typing.EventDict]
) -> None:
    async def work(store: PostgresStore) -> None:
        # Only the oldest day, which is empty: each that is in use takes two seconds.
        running = Maintenance(store, Telemetry(), OLD)
        with psycopg.connect(world.dsn) as reader:
            reader.execute("SELECT FROM holdfast.entry")
            await running.step()
        assert [line["in_use"] for line in logged if line["event"] == "day.kept"] == [True]
        await running.step()
        assert old - timedelta(days=1) not in partition_days(world.db, "entry")

    _run(world.dsn, work)


def test_tomorrow_that_is_missing_is_made_while_it_runs(
    world: World, logged: list[structlog.typing.EventDict]
) -> None:
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    for table in ("entry", "attempt"):
        world.db.execute(f"DROP TABLE holdfast.{table}_{tomorrow:%Y%m%d}".encode())

    async def work(store: PostgresStore) -> None:
        await Maintenance(store, Telemetry(), None).step()

    _run(world.dsn, work)
    assert tomorrow in partition_days(world.db, "entry") & partition_days(world.db, "attempt")
    assert [line["created"] for line in logged if line["event"] == "partitions.made"] == [2]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--retain", "90"], "expected 1d to 36500d"),
        (["--retain", "0d"], "expected 1d to 36500d"),
        (["--retain", "90d", "--drain"], "holdfast db prune"),
    ],
)
def test_senseless_retention_is_one_line(dsn: str, options: list[str], complaint: str) -> None:
    done = holdfast("dispatch", *options, dsn=dsn, code=ExitCode.USAGE)
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
