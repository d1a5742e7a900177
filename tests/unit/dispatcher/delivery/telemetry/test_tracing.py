"""The span of an attempt: with the real SDK where it is set up, and nothing where it is not."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from holdfast.dispatcher.delivery.rules.values import Attempt, Entry
from holdfast.dispatcher.delivery.telemetry.tracing import attempt_span, attempt_spans
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.support.dispatch.dispatching import tracing

KEY = UUID("0189cafe-0000-7000-8000-000000000001")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CANARIES = ("canary-url", "canary-body", "0189cafe", "canary-response", "canary-error")
ENDPOINT = Endpoint(
    id=1,
    name="payouts",
    url="https://canary-url.example/hook",
    allowed=(),
    connect_timeout=1,
    total_timeout=2,
    concurrency=3,
    schedule_seconds=(5,),
    order_policy=OrderPolicy.STOP,
)


def _entry(traceparent: str | None = TRACEPARENT) -> Entry:
    at = datetime(2026, 11, 2, 12, tzinfo=UTC)
    return Entry(4, 2, KEY, at, traceparent, b'{"data":"canary-body"}')


def _attempt(outcome: Outcome, status: int | None) -> Attempt:
    return Attempt(4, 2, KEY, outcome, status, 12, "canary-error", "canary-response", None)


def test_attempt_is_a_trace_of_its_own_linked_to_the_batch() -> None:
    with tracing() as spans:
        outer = api.get_tracer("test").start_as_current_span("around")
        with outer, attempt_span(ENDPOINT, _entry()) as span:
            span.judged(_attempt(Outcome.DELIVERED, 200))
        result = spans.ended[0]
    assert (result.name, result.kind, result.parent) == (
        "holdfast.deliver",
        api.SpanKind.CLIENT,
        None,
    )
    (link,) = result.links
    assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}" == TRACEPARENT[3:-3]
    assert dict(result.attributes or {}) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "send",
        "messaging.destination.name": "payouts",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "holdfast.attempt": 2,
        "holdfast.outcome": "delivered",
    }
    assert result.status.status_code is api.StatusCode.UNSET


@pytest.mark.parametrize(
    ("outcome", "status"), [(Outcome.FAILED, 500), (Outcome.UNKNOWN, None), (Outcome.REFUSED, None)]
)
def test_undelivered_attempt_is_an_error(outcome: Outcome, status: int | None) -> None:
    with tracing() as spans, attempt_span(ENDPOINT, _entry()) as span:
        span.judged(_attempt(outcome, status))
    result = spans.one
    assert result.status.status_code is api.StatusCode.ERROR
    assert result.status.description is None
    assert (result.attributes or {})["error.type"] == outcome.value
    assert not any(canary in result.to_json() for canary in CANARIES)


@pytest.mark.parametrize("traceparent", [None, "", "00-nonsense", "00-" + "0" * 32 + "-01"])
def test_entry_without_a_trace_has_no_link(traceparent: str | None) -> None:
    with tracing() as spans, attempt_span(ENDPOINT, _entry(traceparent)):
        pass
    assert spans.one.links == ()


def test_what_the_block_raises_is_raised_and_not_kept() -> None:
    error = ValueError("canary-body")
    with tracing() as spans, pytest.raises(ValueError, match="canary") as raised:  # noqa: SIM117 - raised inside
        with attempt_span(ENDPOINT, _entry()):
            raise error
    assert raised.value is error
    assert list(spans.one.events) == []
    assert not any(canary in spans.one.to_json() for canary in CANARIES)


def test_span_that_is_not_sampled_is_not_exported() -> None:
    with tracing(ALWAYS_OFF) as spans, attempt_span(ENDPOINT, _entry()) as span:
        span.judged(_attempt(Outcome.DELIVERED, 200))
    assert spans.ended == []


def test_without_an_sdk_nothing_is_traced() -> None:
    before = api.get_current_span()
    with attempt_span(ENDPOINT, _entry()) as span:
        span.judged(_attempt(Outcome.DELIVERED, 200))
    assert api.get_current_span() is before


def test_dispatcher_that_starts_without_tracing_makes_no_spans() -> None:
    assert attempt_spans() is None
    with tracing():
        assert attempt_spans() is attempt_span
