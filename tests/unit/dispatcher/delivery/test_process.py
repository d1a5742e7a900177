"""A dispatcher's settings and clocks, when it is alive and ready, and what it sends."""

import asyncio
import gc
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from holdfast.dispatcher.delivery import database_clock, sender
from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.endpoints import Endpoints, Ready
from holdfast.dispatcher.delivery.health import ANSWER_SECONDS, Health
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.process.single import YOUNG_MAX, tuned_for_deliveries
from holdfast.dispatcher.delivery.rules.decide import release
from holdfast.dispatcher.delivery.rules.lease import SETTLE_SECONDS
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.values import Entry, Lane, Settled, Settlement
from holdfast.dispatcher.delivery.sender import RepeatCheck, Sender
from holdfast.dispatcher.delivery.settings import Settings
from holdfast.dispatcher.delivery.settler import GATHERS_MAX, STREAM, Settler
from holdfast.dispatcher.delivery.supervisor import Pulse, Supervisor
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.outbound.key_window import KeyWindow
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.outcome import Answer, Response
from holdfast.dispatcher.shared.rate import BEGIN_SECONDS
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.states import OrderPolicy, Outcome
from holdfast.sink.contract.wire import TOLERANCE_SECONDS
from tests.support.waiting import Clock


@pytest.mark.parametrize(
    "values",
    [
        {"concurrency": 0},
        {"concurrency": 5000},
        {"claim_lanes": -1},
        {"entries_per_lane": 0},
        {"lease_seconds": 1.0},
        {"lease_seconds": float("nan")},
        {"lease_seconds": 601.0},
        {"stop_seconds": -1.0},
    ],
)
def test_senseless_setting_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Settings(dsn="", **values)


def test_representation_hides_the_dsn() -> None:
    assert "hunter2" not in repr(Settings(dsn="postgresql://u:hunter2@h/d"))


def test_interpreter_is_tuned_only_while_a_dispatcher_runs() -> None:
    before = gc.get_threshold()
    with suppress(KeyError), tuned_for_deliveries():
        within = gc.get_threshold(), gc.get_freeze_count()
        raise KeyError
    assert within[0] == (YOUNG_MAX, *before[1:])
    assert within[1] > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(clock)


def test_loop_stalled_beyond_its_limit_is_named(clock: Clock, health: Health) -> None:
    health.turn("claim", 10)
    health.turn("route", 100)
    clock.now += 10
    assert health.not_live() == []
    clock.now += 1
    (fault,) = health.not_live()
    assert "'claim'" in fault
    assert "11 s" in fault
    health.turn("claim", 10)
    assert health.not_live() == []


def test_loop_that_has_ended_is_not_missed(clock: Clock, health: Health) -> None:
    health.turn("claim", 10)
    health.end("claim")
    clock.now += 1000
    assert health.not_live() == []


def test_ready_needs_endpoints_and_an_answer_of_the_database(clock: Clock, health: Health) -> None:
    assert len(health.not_ready()) == 2
    health.loaded()
    health.answered(None)
    assert health.not_ready() == []
    clock.now += ANSWER_SECONDS + 1
    assert health.not_ready() == ["the database has not answered for 21 s"]
    assert health.not_live() == []
    health.answered("the schema has revision 0001, this version needs 0014")
    assert health.not_ready() == ["the schema has revision 0001, this version needs 0014"]


def test_dispatcher_that_stops_is_not_ready_and_still_alive(health: Health) -> None:
    health.loaded()
    health.answered(None)
    health.stopping()
    assert health.not_ready() == ["the dispatcher is stopping"]
    assert health.not_live() == []


def test_step_that_never_ends_is_seen(clock: Clock, health: Health) -> None:
    async def run() -> None:
        supervisor = Supervisor(Telemetry(), health)
        begun = asyncio.Event()

        async def hang() -> bool:
            begun.set()
            await asyncio.Event().wait()
            return False

        task = asyncio.create_task(supervisor.loop("claim", hang, Pulse(1, 2), step_seconds=30))
        await begun.wait()
        clock.now += 31
        assert health.not_live() == []
        clock.now += 2
        assert len(health.not_live()) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert health.not_live() == []

    asyncio.run(run())


NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed since noon on both clocks; the last one is now."""
    passed = [0.0]
    monkeypatch.setattr(database_clock, "seconds", lambda: passed[-1])
    monkeypatch.setattr(database_clock.time, "time", lambda: NOON.timestamp() + passed[-1])
    return passed


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_slow_heartbeat_moves_the_clock_at_most_by_its_duration(elapsed: list[float]) -> None:
    clock = DatabaseClock()
    assert clock.moment() == NOON
    elapsed.append(0.002)
    clock.measured(after(0.001), 0.0)
    assert clock.moment() == after(0.002)
    elapsed.append(100.0)
    clock.measured(after(99.0), 40.0)
    assert clock.moment() == after(100.0), "the time lies within the call: nothing new"
    elapsed.append(200.0)
    clock.measured(after(230.0), 199.0)
    assert clock.moment() == after(230.0), "the database's clock was set forward"


@pytest.mark.parametrize("skew", [TOLERANCE_SECONDS, -TOLERANCE_SECONDS])
def test_clock_is_a_fault_beyond_what_receivers_accept(elapsed: list[float], skew: int) -> None:
    clock = DatabaseClock()
    clock.measured(after(-skew), elapsed[-1])
    assert clock.skew_seconds == skew
    assert clock.fault is None
    further = DatabaseClock()
    further.measured(after(-skew * 1.01), elapsed[-1])
    assert further.fault is not None


URL = "https://payouts.example/"
SECRETS = (Secret(bytes(32)),)
ENDPOINT = Endpoint(
    1, "e", URL, (), 1, 30.0, 1, (5,), OrderPolicy.STOP, inquiry_path="/holdfast/keys/"
)
READY = Ready(ENDPOINT, Target(1, URL, (), 1, 1), SECRETS, Signer(SECRETS))


@dataclass
class Sent:
    """A sender with one endpoint that delivers everything; what it sent and settled."""

    check_repeat: RepeatCheck | None = None
    fault_after_sending: Exception | None = None
    posted: int = 0
    crashed: list[str] = field(default_factory=list)
    settled: list[Settlement] = field(default_factory=list)

    async def send(self, _target: object, _request: object, progress: Progress) -> Answer:
        self.posted += 1
        if self.fault_after_sending is not None:
            progress.sent = True
            raise self.fault_after_sending
        return Response(200)

    def run(self, *entries: Entry, age: float = 0.0) -> Settlement:
        """Send a paced lane that was claimed `age` seconds ago."""
        posting = Sender(
            _as_any(SimpleNamespace(ready={1: READY})),
            _as_any(self),
            _as_any(SimpleNamespace(crashed=lambda where, _error: self.crashed.append(where))),
            settle=self.settled.append,
            holds=Holds(),
            clock=DatabaseClock(),
            check_repeat=self.check_repeat,
        )
        asyncio.run(posting.send(_lane(entries, seconds() - age)))
        (settlement,) = self.settled
        return settlement


def _as_any(value: object) -> Any:
    return value


def _lane(entries: Sequence[Entry], claimed_at: float) -> Lane:
    trusted = claimed_at + BEGIN_SECONDS + ENDPOINT.attempt_seconds + SETTLE_SECONDS
    return Lane(1, 1, UUID(int=1), 0, tuple(entries), trusted, claimed_at + 60, claimed_at)


def entry(number: int = 1, *, forgotten: bool = False) -> Entry:
    return Entry(
        1, number, UUID(int=7), datetime(2026, 11, 2, tzinfo=UTC), None, b"{}", 0, forgotten
    )


async def no_answer(*_: object) -> Response | None:
    return None


async def broken(*_: object) -> Response | None:
    raise RuntimeError("the inquiry failed")


def test_paced_entry_is_sent_soon_after_its_claim_or_given_back() -> None:
    in_time, late = Sent(), Sent()
    assert in_time.run(entry(), age=0.01).move is Move.ADVANCE
    assert late.run(entry(), age=BEGIN_SECONDS + 0.1).move is Move.RELEASE
    assert (in_time.posted, late.posted) == (1, 0)


def test_key_is_not_sent_when_its_inquiry_used_up_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [seconds()]
    monkeypatch.setattr(sender, "seconds", lambda: now[-1])

    async def stalled(*_: object) -> Response | None:
        now.append(now[-1] + ENDPOINT.attempt_seconds)
        return None

    sent = Sent(check_repeat=stalled)
    assert sent.run(entry(2)).move is Move.RELEASE
    assert sent.posted == 0


def test_forgotten_key_is_refused_before_its_window_is_loaded() -> None:
    assert READY.key_window is None
    sent = Sent(check_repeat=no_answer)
    (attempt,) = sent.run(entry(2, forgotten=True)).attempts
    assert attempt.outcome is Outcome.REFUSED
    assert sent.posted == 0


def test_fault_after_sending_leaves_the_outcome_unknown() -> None:
    sent = Sent(fault_after_sending=RuntimeError("the answer cannot be read"))
    (attempt,) = sent.run(entry()).attempts
    assert (attempt.outcome, attempt.ours) == (Outcome.UNKNOWN, True)
    assert (sent.posted, sent.crashed) == (1, ["send"])


def test_receiver_whose_inquiry_fails_is_sent_the_key_again() -> None:
    sent = Sent(check_repeat=broken)
    assert sent.run(entry(2)).move is Move.ADVANCE
    assert (sent.posted, sent.crashed) == (1, ["ask"])


@pytest.mark.parametrize(
    ("known", "stated", "stored", "shrunk"),
    [
        (None, 10_000_000, 10_000_000, False),
        (10_000_000, 20_000_000, 20_000_000, False),
        (20_000_000, 10_000_000, 10_000_000, True),
        (20_000_000, 1, ENDPOINT.budget_seconds, True),
        (ENDPOINT.budget_seconds, 1, None, True),
    ],
)
def test_key_window_that_shrinks_is_logged_once(
    known: int | None, stated: int, stored: int | None, *, shrunk: bool
) -> None:
    lines: list[Line] = []
    telemetry = _as_any(SimpleNamespace(warn=lambda line, **_: lines.append(line)))
    nothing: Any = None
    noted: dict[int, KeyWindow] = {}

    async def note(windows: dict[int, KeyWindow]) -> None:
        noted.update(windows)

    store = _as_any(SimpleNamespace(note_key_windows=note))
    endpoints = Endpoints(store, nothing, telemetry, 30.0, nothing)
    ready = replace(READY, key_window=None if known is None else KeyWindow(known))
    assert endpoints.learn(ready, KeyWindow(stated)) is shrunk
    assert endpoints.learn(ready, KeyWindow(stated)) is shrunk
    asyncio.run(endpoints.note_windows())
    assert noted == ({} if stored is None else {1: KeyWindow(stored)})
    assert lines == [Line.KEY_WINDOW_SHRUNK] * shrunk


class Bench:
    """A settler whose waits are counted; while it waits, further results come."""

    def __init__(self, coming: int) -> None:
        self.sizes: list[int] = []
        self.waits = 0
        self._coming = coming
        self._subjects = count(1)
        self.settler = Settler(
            self.settle,
            cast("Any", SimpleNamespace(name=str)),
            Telemetry(),
            done=lambda _: None,
            due=lambda: None,
            retries=lambda _: None,
            pause=self._pause,
        )

    async def settle(self, batch: Sequence[Settlement], *, repeated: bool) -> list[Settled]:
        assert not repeated
        self.sizes.append(len(batch))
        self.settler.close()
        return [Settled(each, None) for each in batch]

    def add(self, results: int) -> None:
        for _ in range(results):
            lane = Lane(1, next(self._subjects), UUID(int=1), 0, (), 100.0)
            self.settler.add(release(lane))

    async def _pause(self, seconds: float) -> None:
        if seconds:
            self.waits += 1
            self.add(self._coming)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("coming", "waits", "size"),
    [(0, 1, 1), (STREAM - 1, 1, STREAM), (STREAM, GATHERS_MAX, 1 + GATHERS_MAX * STREAM)],
)
def test_streams_of_results_share_a_transaction(coming: int, waits: int, size: int) -> None:
    bench = Bench(coming)
    bench.add(1)
    asyncio.run(bench.settler.run())
    assert (bench.waits, bench.sizes) == (waits, [size])
