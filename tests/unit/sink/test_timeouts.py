"""Timeouts that cannot be meant are refused before anything connects, in words."""

import math
import socket
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from holdfast.sink.transaction.database import SECONDS_MAX, Timeouts, _milliseconds, cut_after

NAMES = [name for name in Timeouts.__slots__ if name != "connect_seconds"]


@pytest.mark.parametrize("name", [*NAMES, "connect_seconds"])
@pytest.mark.parametrize("value", [-1, math.inf, math.nan, SECONDS_MAX + 1, "5", None, True])
def test_timeout_that_cannot_be_meant_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is .*: expected .*from 0 to 2,147,483"):
        Timeouts(**{name: value})


def test_seconds_to_connect_are_whole() -> None:
    with pytest.raises(ValueError, match=r"^connect_seconds is 0\.5: expected a whole number"):
        Timeouts(connect_seconds=cast("int", 0.5))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, 0.001, 5, SECONDS_MAX])
def test_timeout_within_the_limits_of_postgres_is_taken(name: str, value: float) -> None:
    assert getattr(Timeouts(**{name: value}), name) == value


def test_no_time_is_off_and_less_than_a_millisecond_is_not() -> None:
    assert [_milliseconds(seconds) for seconds in (0, 0.0001, 1.5)] == ["0ms", "1ms", "1500ms"]


def test_transaction_without_a_limit_is_not_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = cast("psycopg.Connection", SimpleNamespace(fileno=ours.fileno))
        with cut_after(line, 0):
            theirs.sendall(b"x")
        assert ours.recv(1) == b"x"
