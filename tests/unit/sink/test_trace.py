"""The span of a batch: with the real SDK where it is set up, and nothing where it is not."""

import doctest
import subprocess
import sys
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from holdfast.sink import trace
from holdfast.sink.errors import SinkUnavailable
from holdfast.sink.trace import batch_span
from holdfast.sink.transaction.ledger import Counts, Replayed, Written
from tests.support.dispatch.dispatching import header, tracing

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


def test_replay_is_told_from_a_written_batch() -> None:
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


def test_examples_of_the_docstrings_run() -> None:
    tried = doctest.testmod(trace)
    assert (tried.failed, tried.attempted > 0) == (0, True)
