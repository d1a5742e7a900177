"""A span for each attempt where the process has set up OpenTelemetry; otherwise nothing.

An attempt is a trace of its own with a link to the entry's `traceparent`: a batch may have more
entries than a trace can hold, and its retries take days. A span never holds a subject, a key, a URL
or a body. Of a failure it holds only the outcome, because error messages may quote data.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.dispatcher.delivery.rules.values import Attempt, Entry
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import Outcome

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer

_NAME = "holdfast.dispatcher"


class AttemptSpan:
    """The span of one attempt; without OpenTelemetry it records nothing."""

    def __init__(self, span: "Span | None") -> None:
        self._span = span

    def judged(self, attempt: Attempt) -> None:
        """Record the outcome of the attempt."""
        if self._span is None:
            return
        self._span.set_attribute("holdfast.outcome", attempt.outcome.value)
        if attempt.status is not None:
            self._span.set_attribute("http.response.status_code", attempt.status)
        if attempt.outcome is not Outcome.DELIVERED:
            self._span.set_attribute("error.type", attempt.outcome.value)
            self._span.set_status(_api().StatusCode.ERROR)


_NOTHING = nullcontext(AttemptSpan(None))


def attempt_spans() -> Callable[[Endpoint, Entry], AbstractContextManager[AttemptSpan]] | None:
    """Return `attempt_span`, or None where OpenTelemetry is not set up yet."""
    return None if _tracer() is None else attempt_span


def attempt_span(endpoint: Endpoint, entry: Entry) -> AbstractContextManager[AttemptSpan]:
    """Run a block as the current span of its task.

    Exceptions of the block propagate and are not recorded. Without opentelemetry-api, or without
    an SDK, there is no span.
    """
    tracer = _tracer()
    return _NOTHING if tracer is None else _span(tracer, endpoint, entry)


@contextmanager
def _span(tracer: "Tracer", endpoint: Endpoint, entry: Entry) -> Iterator[AttemptSpan]:
    with tracer.start_as_current_span(
        "holdfast.deliver",
        # The attempt is a root span, even where the dispatcher's own task has a span.
        context=import_module("opentelemetry.context").Context(),
        kind=_api().SpanKind.CLIENT,
        attributes={
            "messaging.system": "holdfast",
            "messaging.operation.name": "deliver",
            "messaging.operation.type": "send",
            "messaging.destination.name": endpoint.name,
            "http.request.method": "POST",
            "holdfast.attempt": entry.number,
        },
        links=_links(entry.traceparent),
        # Both would record the message of an error, which may quote data.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield AttemptSpan(span)


def _links(traceparent: str | None) -> "list[Link]":
    if traceparent is None:
        return []
    api, propagation = _api(), import_module("opentelemetry.trace.propagation.tracecontext")
    found = propagation.TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    context = api.get_current_span(found).get_span_context()
    return [api.Link(context)] if context.is_valid else []


def _tracer() -> "Tracer | None":
    api = _api()
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    tracer: Tracer = api.get_tracer(_NAME)
    return tracer


@cache
def _api() -> Any:
    """`opentelemetry.trace`, or None where it is not installed."""
    try:
        return import_module("opentelemetry.trace")
    except ModuleNotFoundError:
        return None
