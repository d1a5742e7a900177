"""Log lines: one JSON object each, without secrets, the same one by one and many at once."""

import io
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import structlog

from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.values import Attempt, Settled, Settlement
from holdfast.dispatcher.delivery.telemetry import log as subject
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry, configure
from holdfast.sink.contract.states import Outcome

KEY = UUID("0189cafe-0000-7000-8000-000000000001")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure(stream)
    yield stream
    structlog.reset_defaults()


def attempt(sequence: int, outcome: Outcome = Outcome.DELIVERED, status: int = 200) -> Attempt:
    return Attempt(sequence, 1, KEY, outcome, status, 12, None, None, None)


def settled(*attempts: Attempt, move: Move = Move.ADVANCE) -> Settled:
    return Settled(Settlement(1, 7, KEY, move, 2, 0, 0, attempts, 0.0), None)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    data = [json.loads(line) for line in stream.getvalue().splitlines()]
    stream.seek(0)
    stream.truncate()
    assert all(line.pop("time").endswith("Z") for line in data)
    return data


@pytest.mark.parametrize("name", ["payouts", 'a "quoted" \\ näme', SECRET])
def test_delivered_attempts_are_the_same_as_line_by_line(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    telemetry = Telemetry()
    results = [(name, settled(attempt(1), attempt(2, status=204))), (name, settled(attempt(3)))]
    telemetry.settled_all(results)
    at_once = lines(stream)
    monkeypatch.setattr(subject, "json_logger", lambda: None)
    telemetry.settled_all(results)
    assert at_once == lines(stream)
    assert len(at_once) == 3
    assert telemetry.counts == {"delivered": 6}


def test_lines_keep_the_order_of_the_results(stream: io.StringIO) -> None:
    telemetry = Telemetry()
    telemetry.settled_all(
        [
            ("a", settled(attempt(1))),
            ("b", settled(attempt(2), attempt(3, Outcome.FAILED, 500), move=Move.RETRY)),
            ("c", settled(attempt(4))),
        ]
    )
    records = lines(stream)
    assert [line["sequence"] for line in records] == [1, 2, 3, 4]
    assert [line["level"] for line in records] == ["info", "info", "warning", "info"]
    assert telemetry.counts == {"delivered": 3, "failed": 1}


def test_terminal_gets_them_as_key_value_pairs() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    configure(stream)
    Telemetry().settled_all([("payouts", settled(attempt(1)))])
    structlog.reset_defaults()
    assert "what=attempt" in stream.getvalue()
    assert "outcome=delivered" in stream.getvalue()


def test_line_is_one_json_object(stream: io.StringIO) -> None:
    Telemetry().info(Line.STOPPED, delivered=3)
    line = json.loads(stream.getvalue())
    assert (line["what"], line["level"], line["delivered"]) == ("dispatcher.stopped", "info", 3)
    assert line["time"].endswith("Z")


def test_secret_in_a_line_is_masked(stream: io.StringIO) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    Telemetry().warn(Line.ENDPOINT_WAITING, reason=f"cannot use {secret}")
    Telemetry().crashed("claim", ValueError(secret))
    assert "MfKQ9r8" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_gets_key_value_pairs() -> None:
    stream = Terminal()
    configure(stream)
    Telemetry().info(Line.STOPPED, delivered=3)
    structlog.reset_defaults()
    assert "what=dispatcher.stopped" in stream.getvalue()
    assert "delivered=3" in stream.getvalue()
