"""What each answer means."""

import pytest

from holdfast.dispatcher.shared.outcome import NoAnswer, NotSent, Refused, Response, classify
from holdfast.sink.contract.states import Outcome

BY_STATUS = {
    Outcome.DELIVERED: (200, 201, 202, 204, 206, 299),
    Outcome.FAILED: (
        *(100, 101, 199, 300, 301, 302, 303, 304, 307, 308),
        *(401, 403, 407, 408, 409, 500, 501, 502, 503, 504, 507, 511, 599, 600, 999),
    ),
    Outcome.REJECTED: (
        *(400, 404, 405, 406, 411, 413, 415, 418, 421, 422, 425, 426, 428, 431, 451),
    ),
    Outcome.GONE: (410,),
    Outcome.THROTTLED: (429,),
}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(status, outcome) for outcome, statuses in BY_STATUS.items() for status in statuses],
)
def test_status_line_decides(status: int, outcome: Outcome) -> None:
    assert classify(Response(status)) is outcome


def test_unavailable_is_throttling_only_when_it_says_for_how_long() -> None:
    assert classify(Response(503, ("5",))) is Outcome.THROTTLED
    assert classify(Response(500, ("5",))) is Outcome.FAILED


def test_a_byte_on_the_wire_makes_a_failure_unknown() -> None:
    assert classify(NotSent("connection refused")) is Outcome.FAILED
    assert classify(NoAnswer("connection reset")) is Outcome.UNKNOWN
    assert classify(Refused("10.0.0.1 is private")) is Outcome.REFUSED
