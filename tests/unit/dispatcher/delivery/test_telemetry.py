"""Lines of the log: one JSON object each, without secrets."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from dispatcher.delivery.telemetry.log import Line, Telemetry, configure


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure(stream)
    yield stream
    structlog.reset_defaults()


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
