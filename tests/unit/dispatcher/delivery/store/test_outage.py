"""One outage of the database is two lines, also where it answers and writes nothing."""

import pytest
from structlog.testing import capture_logs

from holdfast.dispatcher.delivery.store import session
from holdfast.dispatcher.delivery.store.session import REFUSED_SECONDS, Outage
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.shared.errors import StoreRefusedError, StoreUnavailableError


class Clock:
    """Seconds that a test moves on."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(session, "seconds", clock)
    return clock


def test_reads_between_refused_writes_do_not_end_the_outage(clock: Clock) -> None:
    with capture_logs() as lines:
        outage = Outage(Telemetry())
        for _ in range(30):
            outage.away(StoreRefusedError("disk full"))
            outage.back()
            clock.now += 1
            outage.back()
        clock.now += REFUSED_SECONDS
        outage.back()
        outage.back()
    assert [line["event"] for line in lines] == ["store.away", "store.back"]
    assert lines[1]["seconds"] == 30 + REFUSED_SECONDS


def test_unresponsive_server_is_back_with_the_next_transaction(clock: Clock) -> None:
    with capture_logs() as lines:
        outage = Outage(Telemetry())
        outage.away(StoreUnavailableError("no answer"))
        clock.now += 1
        outage.back()
    assert [line["event"] for line in lines] == ["store.away", "store.back"]
    assert lines[1]["seconds"] == 1


def test_refusal_after_a_restart_is_told(clock: Clock) -> None:
    with capture_logs() as lines:
        outage = Outage(Telemetry())
        for error in ("terminating connection", "starting up"):
            outage.away(StoreUnavailableError(error))
        for _ in range(2):
            outage.away(StoreRefusedError("no transaction IDs"))
        clock.now += REFUSED_SECONDS
        outage.back()
    told = [(line["event"], line.get("error")) for line in lines]
    assert told == [
        ("store.away", "terminating connection"),
        ("store.away", "no transaction IDs"),
        ("store.back", None),
    ]
