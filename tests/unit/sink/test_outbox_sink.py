"""`OutboxSink` before it meets Spark or a database, its traces, and rows to requeue."""

import doctest
import json
import math
import pickle
import socket
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from holdfast.sink import BatchInput, OutboxSink, trace
from holdfast.sink.errors import NotPrimary, NotStreaming, SchemaMismatch, SinkUnavailable
from holdfast.sink.foreach_batch import STAGED_BYTES, PathChoice
from holdfast.sink.requeue import Unfit, _prepared, stream_of
from holdfast.sink.rows.outcome import Counts, Replayed, Written
from holdfast.sink.session import UNKNOWN_BYTES, Identity, session_of
from holdfast.sink.trace import batch_span
from holdfast.sink.transaction.database import (
    SECONDS_MAX,
    Timeouts,
    _milliseconds,
    cut_after,
    error_text,
)
from holdfast.sink.transaction.retry import is_transient, until_done
from tests.support.dispatch.dispatching import header, tracing
from tests.support.dispatch.sender import BLOCK, decision, table

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


@pytest.mark.parametrize(
    "dsn", ["app:s3cret@db", "postgresql://app:pa@x:s3cret@db/holdfast", "port=70000"]
)
def test_dsn_that_cannot_be_read_is_refused_without_quoting_it(dsn: str) -> None:
    with pytest.raises(ValueError, match=r"^the DSN cannot be read") as raised:
        OutboxSink(dsn, stream="payouts")
    assert "s3cret" not in str(raised.value)
    assert raised.value.__context__ is None


def _token() -> str:
    return "s3cret-token"


def test_password_of_a_function_is_in_no_pickle() -> None:
    sink = OutboxSink("host=db user=app", stream="payouts", password=_token)
    assert b"s3cret-token" not in pickle.dumps(sink) + pickle.dumps(sink._stage)


def test_error_of_the_database_is_shown_without_a_password() -> None:
    error = psycopg.OperationalError("no server at\n  postgresql://app:canary@db/x password=canary")
    assert error_text(error) == "no server at postgresql://app:***@db/x password=***"


def test_sink_takes_only_the_batch_that_its_thread_runs() -> None:
    """As where a function calls the sink with a number of its own."""
    query_id, run_id = (UUID(int=number) for number in (1, 2))
    properties = {
        "sql.streaming.queryId": str(query_id),
        "sql.streaming.runId": str(run_id),
        "streaming.sql.batchId": "7",
    }
    context = SimpleNamespace(getLocalProperty=properties.get)
    df: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    session = session_of(df.sparkSession, None)
    assert session.identity(df, 7, None) == Identity(query_id, run_id, 7)
    with pytest.raises(NotStreaming, match=r"Spark runs batch 7 .* called for batch 8"):
        session.identity(df, 8, None)


@pytest.mark.parametrize("default", [None, SimpleNamespace(session_id="a1")])
def test_sink_is_pickled_in_a_thread_without_a_session(
    monkeypatch: pytest.MonkeyPatch, default: SimpleNamespace | None
) -> None:
    # Those of Spark 4.3; without grpc its module cannot be imported.
    spark = SimpleNamespace(getActiveSession=lambda: None, _get_default_session=lambda: default)
    name = "pyspark.sql.connect.session"
    monkeypatch.setitem(sys.modules, name, cast("Any", SimpleNamespace(SparkSession=spark)))
    sink = pickle.loads(pickle.dumps(OutboxSink(DSN, stream="payouts")))  # noqa: S301 - own bytes
    assert sink._client == (default and default.session_id)


def test_checkpoint_behind_connect_is_never_found_by_a_pattern() -> None:
    behind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    session = session_of(cast("Any", behind()), None)
    assert session.files("/checkpoints/run[1]").location == "/checkpoints/run[1]"
    with pytest.raises(OSError, match="behind Spark Connect its path may have none of"):
        session.files("hdfs://namenode/checkpoints/run[1]")


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
def test_senseless_timeout_is_named(name: str, value: Any) -> None:
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


GOOD: dict[str, Any] = {
    "subject": "m_9",
    "type": BLOCK,
    "key": ["payout-hold/v1", "m_9", "2026-11-02T12:15:00Z", "block", "1"],
    "occurred_at": "2026-11-02T12:15:00Z",
    "data": {"merchant_id": "m_9", "tags": [{"a": None}], "empty": {}, "on": True},
}


def _body(row: dict[str, Any]) -> dict[str, Any]:
    [entry] = _prepared(json.dumps(row)).entries.to_pylist()
    body: dict[str, Any] = json.loads(f"{entry['head']}1{entry['tail']}")
    return body


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"priority": 3, "traceparent": None},
        {"data": {}},
        {"data": {"at": "2026-11-02T12:15:00Z", "big": 2**53 - 1}},
        {"data": {"text": 'a\n"\\é\u2028'}},
        {"occurred_at": "2026-11-02T14:15:00.000000+02:00"},
    ],
)
def test_row_becomes_the_entry_that_it_says(change: dict[str, Any]) -> None:
    body = _body(GOOD | change)
    assert body["timestamp"] == "2026-11-02T12:15:00Z"
    assert body["data"] == (GOOD | change)["data"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (GOOD | {"data": {"x": 1.5}}, "1.5 is not whole"),
        (GOOD | {"data": {"x": float("nan")}}, "NaN is not whole"),
        (GOOD | {"data": [1]}, "data is not a JSON object"),
        (GOOD | {"data": None}, "bad_data: data is null"),
        (GOOD | {"data": {"x": 2**53}}, "bad_data"),
        (GOOD | {"data": {"x": 2**70}}, "1180591620717411303424 is beyond 2.53-1"),
        (GOOD | {"data": {"x": 10**4000 // 9}}, "1{40}... is beyond 2.53-1"),
        (GOOD | {"data": {"x": -(2**63) - 1}}, "-9223372036854775809 is beyond"),
        (GOOD | {"data": {"x": [1, "a"]}}, "several types"),
        (GOOD | {"data": {"x": [True, 1]}}, "several types"),
        (GOOD | {"data": {"x": [{}, 1]}}, "several types"),
        (GOOD | {"data": {"x": [{"a": 1}, {"b": 1}]}}, "differ in their members"),
        (GOOD | {"data": {"x": "\ud800"}}, "lone surrogate"),
        (GOOD | {"data": {"\udfff": 1}}, "lone surrogate"),
        (GOOD | {"subject": "m\ud800"}, "lone surrogate"),
        (GOOD | {"data": {"x": "\x00"}}, "bad_data"),
        (GOOD | {"occurred_at": "yesterday"}, "RFC 3339"),
        (GOOD | {"occurred_at": "2026-02-31T00:00:00Z"}, "RFC 3339"),
        (GOOD | {"occurred_at": 569_000_000_000_000_000}, "RFC 3339"),
        (GOOD | {"occurred_at": "9999-12-31T23:59:59-23:59"}, "years 1 to 9999"),
        (GOOD | {"occurred_at": "0001-01-01T00:00:00+23:59"}, "years 1 to 9999"),
        (GOOD | {"occurred_at": None}, "occurred_at is null"),
        (GOOD | {"subject": ""}, "bad_subject"),
        (GOOD | {"subject": 5}, "subject is not a string"),
        (GOOD | {"type": ["a"]}, "type is not a string"),
        (GOOD | {"traceparent": False}, "traceparent is not a string"),
        (GOOD | {"subject": None}, "bad_subject"),
        (GOOD | {"type": "a b"}, "bad_type"),
        (GOOD | {"key": "m_9"}, "not a list"),
        (GOOD | {"key": [1]}, "key is not a list of strings"),
        (GOOD | {"key": [None]}, "key is not a list of strings"),
        (GOOD | {"key": []}, "bad_key"),
        (GOOD | {"priority": True}, "priority is not a whole number"),
        (GOOD | {"priority": 2**31}, "priority is not a whole number"),
        (GOOD | {"priority": "1"}, "priority is not a whole number"),
        (GOOD | {"priority": -1}, "bad_data"),
        (GOOD | {"amount": 1}, "unknown: amount"),
        ({name: GOOD[name] for name in ("subject", "type", "key")}, "missing here: data"),
        ([GOOD], "not a JSON object"),
        ("text", "not a JSON object"),
    ],
)
def test_row_that_is_no_entry_is_refused(row: object, complaint: str) -> None:
    with pytest.raises(Unfit, match=complaint):
        _prepared(json.dumps(row))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON: it cannot be read from line 1, column 1 on"),
        ('{"subject":\n x}', "not JSON: it cannot be read from line 2, column 2 on"),
        ("\ufeff{}", "not JSON: it cannot be read from line 1, column 1 on"),
        ("{", "not JSON"),
        ('{"data": {"a": 1, "a": 2}}', "a member twice"),
        ("[" * 100_000, "too deeply"),
        ("9" * 5000, "9{40}... is beyond 2.53-1"),
        ("[" * 500 + "9" * 5000, "beyond"),
    ],
)
def test_text_that_is_no_row_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(Unfit, match=complaint):
        _prepared(text)


def test_requeued_rows_get_a_stream_name_that_fits() -> None:
    assert stream_of("payouts") == "payouts.requeue"
    names = [stream_of("s" * 55), stream_of("s" * 56), stream_of("s" * 63)]
    assert all(len(name) <= 63 for name in names)
    assert len(set(names)) == 3


QUERY = UUID("0189cafe-0000-7000-8000-000000000001")
CANARIES = ("m_482", "8500000", "hunter2")
COUNTS = Counts(rows=9, entries=4, duplicates=2, differing=1, suppressed=2, quarantined=1)
OUTCOME = ("payouts", 7, 1, datetime(2026, 11, 2, 12, tzinfo=UTC), COUNTS)

SET_UP_LATER = """
import sys
from uuid import UUID
from holdfast.sink.trace import batch_span
assert "opentelemetry.sdk" not in sys.modules
with batch_span("payouts", UUID(int=1), 0) as span:
    assert span.traceparent is None
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
with batch_span("payouts", UUID(int=1), 0) as span:
    print(span.traceparent)
"""


def _row_error() -> psycopg.Error:
    return psycopg.errors.CheckViolation(
        "new row violates a check\nDETAIL: Failing row contains (m_482, 8500000)."
    )


def test_span_is_named_as_the_conventions_say_and_holds_the_counts() -> None:
    with tracing() as spans, batch_span("payouts", QUERY, 7) as span:
        span.written(Written(*OUTCOME))
    result = spans.one
    assert (result.name, result.kind) == ("send payouts", api.SpanKind.PRODUCER)
    assert dict(result.attributes or {}) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "payouts",
        "messaging.batch.message_count": 4,
        "db.system.name": "postgresql",
        "holdfast.query_id": str(QUERY),
        "holdfast.batch_id": 7,
        "holdfast.outcome": "written",
        "holdfast.batch.rows": 9,
        "holdfast.batch.duplicates": 2,
        "holdfast.batch.differing": 1,
        "holdfast.batch.suppressed": 2,
        "holdfast.batch.quarantined": 1,
    }
    assert result.status.status_code is api.StatusCode.UNSET


def test_replay_differs_from_a_written_batch() -> None:
    with tracing() as spans, batch_span("payouts", QUERY, 7) as span:
        span.written(Replayed(*OUTCOME))
    assert (spans.one.attributes or {})["holdfast.outcome"] == "replayed"


def test_traceparent_belongs_to_the_span_in_the_outer_trace() -> None:
    with tracing() as spans:
        tracer = api.get_tracer("test")
        with tracer.start_as_current_span("job"), batch_span("payouts", QUERY, 7) as span:
            traceparent = span.traceparent
            with tracer.start_as_current_span("inner"):
                assert span.traceparent == traceparent
    inner, batch, job = spans.ended
    assert traceparent == header(batch)
    assert batch.parent == job.get_span_context()
    assert inner.parent == batch.get_span_context()


def test_unsampled_span_is_propagated_but_not_exported() -> None:
    with tracing(ALWAYS_OFF) as spans, batch_span("payouts", QUERY, 7) as span:
        flags = int((span.traceparent or "").rpartition("-")[2], 16)
        assert not flags & api.TraceFlags.SAMPLED
        span.written(Written(*OUTCOME))
    assert spans.ended == []


@pytest.mark.parametrize(
    ("error", "kind", "state"),
    [
        (_row_error(), "psycopg.errors.CheckViolation", "23514"),
        (ValueError("m_482 has 8500000"), "builtins.ValueError", None),
        (KeyboardInterrupt(), "builtins.KeyboardInterrupt", None),
    ],
)
def test_error_is_named_without_quotes(error: BaseException, kind: str, state: str | None) -> None:
    with tracing() as spans, pytest.raises(type(error)) as raised, batch_span("payouts", QUERY, 7):
        raise error
    assert raised.value is error
    found, attributes = spans.one, spans.one.attributes or {}
    assert found.status.status_code is api.StatusCode.ERROR
    assert found.status.description is None
    assert (attributes["error.type"], attributes.get("db.response.status_code")) == (kind, state)
    assert list(found.events) == []
    assert not any(canary in found.to_json() for canary in CANARIES)


def test_translated_error_keeps_the_database_code() -> None:
    def fail() -> None:
        with batch_span("payouts", QUERY, 7):
            raise SinkUnavailable("postgresql://app:hunter2@db") from psycopg.errors.DiskFull("x")

    with tracing() as spans, pytest.raises(SinkUnavailable):
        fail()
    attributes = spans.one.attributes or {}
    assert attributes["error.type"] == "holdfast.sink.errors.SinkUnavailable"
    assert attributes["db.response.status_code"] == "53100"
    assert "hunter2" not in spans.one.to_json()


def test_without_an_sdk_nothing_is_traced() -> None:
    before = api.get_current_span()
    with batch_span("payouts", QUERY, 7) as span:
        assert span.traceparent is None
        assert api.get_current_span() is before
        span.written(Written(*OUTCOME))


def test_no_sdk_is_imported_and_one_may_come_later() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SET_UP_LATER],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("00-")


def test_sink_needs_neither_spark_nor_what_other_parts_need() -> None:
    others = [
        "alembic",
        "fastapi",
        "httpx",
        "pandas",
        "py4j",
        "pyspark",
        "rich",
        "sqlalchemy",
        "typer",
        "uvicorn",
    ]
    program = (
        f"import sys; sys.modules |= dict.fromkeys({others}); from holdfast.sink import OutboxSink;"
        f" OutboxSink({DSN!r}, stream='payouts')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_examples_of_the_docstrings_run() -> None:
    tried = doctest.testmod(trace)
    assert (tried.failed, tried.attempted > 0) == (0, True)
