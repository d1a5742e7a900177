"""The doorbell: rung by the real sink, heard by the real dispatcher, and never required."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery import polls, service
from holdfast.dispatcher.delivery.doorbell import Doorbell
from holdfast.dispatcher.delivery.service import Dispatcher
from holdfast.dispatcher.delivery.settings import Settings
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.watch import Watch
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.outbound.transport.engines import open_transport
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch.sender import decision, table
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres_proxy import PostgresProxy
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


LISTENERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast-dispatcher'
        AND query LIKE '%LISTEN holdfast_doorbell%'"""

DUE = "SELECT count(*) FROM holdfast.lane WHERE due_at <= now() AND token IS NULL"


def latencies(decisions: Decisions, receiver: WebhookReceiver, count: int) -> list[float]:
    """Seconds from COMMIT to the receiver, one entry at a time, in an idle system."""
    results = []
    for n in range(count):
        before = len(receiver.seen)
        decisions.write(f"m_{n}")
        committed = time.monotonic()
        eventually(lambda before=before: len(receiver.seen) > before)  # type: ignore[misc]  # bound
        results.append(receiver.seen[before].at - committed)
    return results


async def _dispatching(world: World, aside: Callable[[], None]) -> None:
    """Call `aside` in a thread while a dispatcher of this process delivers."""
    store, watch, transport = PostgresStore(world.dsn), Watch(world.dsn), open_transport()
    try:
        await store.open()
        await watch.open()
        dispatcher = Dispatcher(Settings(dsn=world.dsn), store, transport, watch)
        running = asyncio.create_task(dispatcher.run())
        try:
            await asyncio.to_thread(aside)
        finally:
            dispatcher.stop()
            await running
    finally:
        await transport.close()
        await watch.close()
        await store.close()


@pytest.fixture
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop that looks for work does so once a minute, and so do heartbeats."""
    for name in ("ROUTE", "CLAIM", "LOOK", "ANNOUNCED", "RARELY"):
        monkeypatch.setattr(polls, f"{name}_SECONDS", 60.0)
    monkeypatch.setattr(service, "BEAT_SECONDS", 60.0)


@pytest.mark.usefixtures("rare_polls")
async def test_doorbell_announces_batches_and_changes_without_polling(world: World) -> None:
    world.add_endpoint()

    def ring() -> None:
        eventually(lambda: world.db.execute(LISTENERS).fetchall())
        for n in range(10):
            world.decisions.write(f"m_{n}")
            eventually(lambda n=n: len(world.receiver.seen) > n, 10)  # type: ignore[misc]  # bound
        world.holdfast("endpoint", "pause", "payouts", "--reason", "tests", code=0)
        world.decisions.write("m_10")
        eventually(lambda: world.db.execute(DUE).fetchone() == (1,))
        world.holdfast("endpoint", "resume", "payouts", "--reason", "tests", code=0)
        eventually(lambda: len(world.receiver.seen) > 10, 10)

    await _dispatching(world, ring)
    assert {each.subject for each in world.receiver.seen} == {f"m_{n}" for n in range(11)}
    assert len(world.receiver.seen) == 11


@pytest.mark.usefixtures("rare_polls")
async def test_heartbeat_finds_a_batch_whose_notification_was_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BEAT_SECONDS", 0.2)
    world.add_endpoint()

    def lose() -> None:
        eventually(lambda: world.db.execute(LISTENERS).fetchall())
        writer = Writer(world.dsn, "quiet", suppress_repeats=False, doorbell=False, first_batch=1)
        writer.begin_run(uuid4(), uuid4())
        _written(writer, 1)
        writer.close()
        eventually(lambda: world.receiver.seen, 10)

    await _dispatching(world, lose)
    assert [each.subject for each in world.receiver.seen] == ["m_1"]


def test_polling_delivers_each_batch_without_a_doorbell(world: World) -> None:
    world.add_endpoint()
    with world.dispatching("--no-doorbell") as running:
        running.says("dispatcher.started")
        assert len(latencies(world.decisions, world.receiver, 2)) == 2
        assert world.db.execute(LISTENERS).fetchall() == []


def test_cut_doorbell_lines_delay_nothing(world: World) -> None:
    world.add_endpoint()
    with world.dispatching() as running:
        running.says("dispatcher.started")
        for turn in range(5):
            eventually(lambda: world.db.execute(LISTENERS).fetchall())
            world.db.execute(
                f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) AS each".encode()
            )
            world.decisions.write("m_1", "m_2")
            eventually(lambda turn=turn: len(world.receiver.seen) == 2 * (turn + 1))  # type: ignore[misc]  # bound
        assert running.process.poll() is None
        assert running.lines("loop.crashed") == []
    assert world.receiver.sequences("m_1") == [1, 2, 3, 4, 5]


async def _until(doorbell: Doorbell, condition: Callable[[], bool]) -> None:
    task = asyncio.create_task(doorbell.run())
    try:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - reported by a log, not by an event
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Heard(Telemetry):
    """The names of the lines, instead of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def info(self, line: Line, **_fields: object) -> None:
        self.lines.append(line.value)

    def warn(self, line: Line, **_fields: object) -> None:
        self.lines.append(line.value)


def _listen(
    dsn: str, condition: Callable[[list[str], int], bool]
) -> tuple[list[str], int, list[bool]]:
    """Listen until the condition holds of the lines and of how often it rang.

    Returns these, and when it was sure to hear what is rung."""
    heard, rings, sure = Heard(), 0, list[bool]()

    def rung() -> None:
        nonlocal rings
        rings += 1

    async def run() -> None:
        watch = Watch(dsn)
        await watch.open()
        doorbell = Doorbell(
            watch, heard, rung, lambda: None, sure.append, probe_seconds=0.2, answer_seconds=0.3
        )
        try:
            await _until(doorbell, lambda: condition(heard.lines, rings))
        finally:
            await watch.close()

    asyncio.run(run())
    return heard.lines, rings, sure


def test_doorbell_deaf_behind_a_pooler_is_reported_once(dsn: str) -> None:
    probes = 0

    def enough(lines: list[str], _rings: int) -> bool:
        nonlocal probes
        probes += bool(lines)
        return probes > 200

    with PgBouncer(dsn, pool=2) as pooler:
        lines, _, sure = _listen(pooler.dsn, enough)
    assert lines == ["doorbell.deaf"]
    assert True not in sure


def test_own_options_are_kept_if_nothing_is_between(dsn: str) -> None:
    lines, rings, sure = _listen(dsn, lambda _lines, rings: rings > 0)
    assert (lines, sure) == ([], [True, False]), "sure from its first self-test to its end"
    assert rings == 1  # once after it began to listen: for who rang before


def test_dead_doorbell_connection_is_detected_and_replaced(dsn: str) -> None:
    with PostgresProxy(dsn) as proxy:
        swallowed = False

        def cut(lines: list[str], rings: int) -> bool:
            nonlocal swallowed
            if rings and not swallowed:
                swallowed = True
                proxy.swallow()
            return "doorbell.heard" in lines or rings > 1

        lines, rings, sure = _listen(proxy.dsn, cut)
    assert swallowed
    assert rings > 1 or "doorbell.heard" in lines
    assert sure[:3] == [True, False, True]


def _written(writer: Writer, batch_id: int) -> object:
    prepared = prepare(BatchInput(table(decision("m_1", batch_id))))
    return writer.write(batch_id, InDriver(prepared))


def test_failed_doorbell_is_a_warning_and_the_batch_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import holdfast.sink.transaction.writer

    real = holdfast.sink.transaction.writer.execute

    def cut(connection: psycopg.Connection, name: str, **values: object) -> object:
        if name == "batch/doorbell":
            pid = connection.info.backend_pid
            world.db.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        return real(connection, name, **values)

    monkeypatch.setattr(holdfast.sink.transaction.writer, "execute", cut)
    writer = Writer(world.dsn, "test", suppress_repeats=False, doorbell=True, first_batch=1)
    writer.begin_run(uuid4(), uuid4())
    with caplog.at_level(logging.WARNING):
        for batch_id in (1, 2):
            assert type(_written(writer, batch_id)).__name__ == "Written"
    assert caplog.text.count("the batch is written, but the doorbell could not be rung") == 2
    assert world.db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (2,)
    writer.close()


def test_sink_rings_once_a_batch_with_entries_unless_told_not_to(world: World) -> None:
    world.db.execute("LISTEN holdfast_doorbell")
    for stream, doorbell, first in (("quiet", False, 1), ("loud", True, 11)):
        writer = Writer(
            world.dsn, stream, suppress_repeats=False, doorbell=doorbell, first_batch=first
        )
        writer.begin_run(uuid4(), uuid4())
        for batch_id in (first, first, first + 1):
            _written(writer, batch_id)
        writer.write(first + 2, InDriver(prepare(BatchInput(table()))))
        writer.close()
    assert len(list(world.db.notifies(timeout=5, stop_after=2))) == 2
    assert list(world.db.notifies(timeout=0.2)) == []
