"""What the sink tries again, and what it does not."""

import psycopg
import pytest

from holdfast.sink.errors import NotPrimary, SchemaMismatch
from holdfast.sink.transaction.retry import is_transient, until_done

_BY_SQLSTATE = psycopg.errors.lookup


@pytest.mark.parametrize(
    "sqlstate",
    [
        "40001",
        "40P01",
        "55P03",
        "57P01",
        "57P02",
        "57P03",
        "57014",
        "53300",
        "53100",
        "08006",
        "25P03",
        "25P04",
    ],
)
def test_not_now_is_transient(sqlstate: str) -> None:
    assert is_transient(_BY_SQLSTATE(sqlstate)("later"))


@pytest.mark.parametrize(
    "sqlstate", ["23505", "23514", "42501", "42P01", "22P02", "XX000", "25006"]
)
def test_never_is_not_transient(sqlstate: str) -> None:
    assert not is_transient(_BY_SQLSTATE(sqlstate)("no"))


def test_lost_line_is_transient_and_other_errors_are_not() -> None:
    assert is_transient(psycopg.OperationalError("server closed the connection unexpectedly"))
    assert not is_transient(psycopg.ProgrammingError("no sqlstate either"))
    assert not is_transient(ValueError("not the database"))


def test_standby_is_waited_for_and_is_a_mismatch_in_the_end() -> None:
    assert is_transient(NotPrimary("a standby"))
    assert not is_transient(SchemaMismatch("no schema"))

    def work() -> None:
        raise NotPrimary("a standby")

    with pytest.raises(SchemaMismatch, match="a standby"):
        until_done(work, 0.1)


def test_permanent_error_is_not_tried_again() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise psycopg.errors.UniqueViolation("no")

    with pytest.raises(psycopg.errors.UniqueViolation):
        until_done(work, 60)
    assert calls == 1


def test_transient_error_is_tried_until_the_deadline_and_raised_as_it_is() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise psycopg.OperationalError("gone")

    with pytest.raises(psycopg.OperationalError, match="gone"):
        until_done(work, 0.2)
    assert calls > 1
