"""The checks before an entry is sent, and how many results share a transaction."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.endpoints import Endpoints, Ready
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.rules.decide import release
from holdfast.dispatcher.delivery.rules.lease import SETTLE_SECONDS
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.values import Entry, Lane, Settled, Settlement
from holdfast.dispatcher.delivery.sender import RepeatCheck, Sender
from holdfast.dispatcher.delivery.settler import GATHERS_MAX, STREAM, Settler
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.outbound.key_window import KeyWindow
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.outcome import Answer, Response
from holdfast.dispatcher.shared.rate import BEGIN_SECONDS
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.states import OrderPolicy, Outcome

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
    posted: int = 0
    crashed: list[str] = field(default_factory=list)
    settled: list[Settlement] = field(default_factory=list)

    async def send(self, *_: object) -> Answer:
        self.posted += 1
        return Response(200)

    def run(self, *entries: Entry, age: float = 0.0) -> Settlement:
        """Send a paced lane that was claimed `age` seconds ago."""
        sender = Sender(
            _as_any(SimpleNamespace(ready={1: READY})),
            _as_any(self),
            _as_any(SimpleNamespace(crashed=lambda where, _error: self.crashed.append(where))),
            settle=self.settled.append,
            holds=Holds(),
            clock=DatabaseClock(),
            check_repeat=self.check_repeat,
        )
        asyncio.run(sender.send(_lane(entries, seconds() - age)))
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


def test_forgotten_key_is_refused_before_its_window_is_loaded() -> None:
    assert READY.key_window is None
    sent = Sent(check_repeat=no_answer)
    (attempt,) = sent.run(entry(2, forgotten=True)).attempts
    assert attempt.outcome is Outcome.REFUSED
    assert sent.posted == 0


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
