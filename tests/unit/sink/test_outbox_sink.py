"""What `OutboxSink` is before it meets Spark or a database: its path, timeouts and retries."""

import math
import pickle
import socket
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from holdfast.sink import BatchInput, OutboxSink
from holdfast.sink.errors import NotPrimary, SchemaMismatch
from holdfast.sink.foreach_batch import STAGED_BYTES, UNKNOWN_BYTES, Identity, PathChoice
from holdfast.sink.transaction.database import SECONDS_MAX, Timeouts, _milliseconds, cut_after
from holdfast.sink.transaction.retry import is_transient, until_done
from tests.support.dispatch.sender import decision, table

DSN = "postgresql://app:s3cret@db/holdfast"


def test_copy_through_pickle_has_the_settings_and_no_connection() -> None:
    sink = OutboxSink(DSN, stream="payouts", checkpoint="/tmp/c", suppress_repeats=False)  # noqa: S108 (a name, no file)
    copy = pickle.loads(pickle.dumps(sink))  # noqa: S301 (our own bytes)
    assert copy._settings == sink._settings
    assert copy._dsn == DSN
    assert copy.last is None
    assert copy._writer._connection is None


def test_repr_hides_the_password() -> None:
    assert repr(OutboxSink(DSN, stream="payouts")) == (
        "OutboxSink('postgresql://app:***@db/holdfast', stream='payouts')"
    )


def test_dsn_that_cannot_be_read_is_refused_without_quoting_it() -> None:
    with pytest.raises(ValueError, match=r"^the DSN cannot be read") as raised:
        OutboxSink("app:s3cret@db", stream="payouts")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "Payouts", "a b", "x" * 64, "-a"])
def test_stream_name_is_one_the_database_takes(name: str) -> None:
    with pytest.raises(ValueError, match="is not a stream name"):
        OutboxSink(DSN, stream=name)


def _as_it_is(rows: pa.Table) -> Any:
    return rows


def _in_pieces(rows: pa.Table) -> Any:
    return BatchInput(rows.to_batches()[0])  # what Arrow gives when it reads a file


def _with_a_list(rows: pa.Table) -> Any:
    return BatchInput(rows, companions={"scores": [rows]})  # type: ignore[dict-item]


@pytest.mark.parametrize("select", [_as_it_is, _in_pieces, _with_a_list])
def test_select_without_batch_columns_is_told_what_is_missing(select: Any) -> None:
    sink = OutboxSink(DSN, stream="payouts", select=select)
    identity = Identity(UUID(int=1), UUID(int=2), 0)
    with pytest.raises(TypeError, match=r"`select` .*BatchInput.*nothing was written"):
        sink.apply(table(decision()), identity)


@pytest.mark.parametrize(
    ("estimated", "before", "staged"),
    [
        (0, 0, False),
        (STAGED_BYTES - 1, STAGED_BYTES, False),
        (STAGED_BYTES, 0, True),
        (UNKNOWN_BYTES, 0, False),
        (UNKNOWN_BYTES, STAGED_BYTES - 1, False),
        (2**63 - 1, STAGED_BYTES, True),
    ],
)
def test_auto_goes_by_plan_or_batch_before(estimated: int, before: int, *, staged: bool) -> None:
    choice = PathChoice("auto", rows_in_driver=False)
    choice.record(before)
    assert choice.is_staged(lambda: estimated) is staged


def test_path_that_is_set_asks_for_no_estimate() -> None:
    def never() -> int:
        raise AssertionError

    assert PathChoice("staged", rows_in_driver=False).is_staged(never)
    assert not PathChoice("driver", rows_in_driver=False).is_staged(never)
    assert not PathChoice("auto", rows_in_driver=True).is_staged(never)


def test_staged_path_is_refused_if_rows_are_wanted_in_the_driver() -> None:
    for wish in ({"select": lambda table: table}, {"also": lambda *_: None}):
        with pytest.raises(ValueError, match="leave both out, or use path='driver'"):
            OutboxSink(DSN, stream="payouts", path="staged", **wish)


def test_path_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of auto, driver, staged"):
        OutboxSink(DSN, stream="payouts", path="fast")  # type: ignore[arg-type]


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


def test_transient_error_is_retried_until_the_deadline() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise psycopg.OperationalError("gone")

    with pytest.raises(psycopg.OperationalError, match="gone"):
        until_done(work, 0.2)
    assert calls > 1
