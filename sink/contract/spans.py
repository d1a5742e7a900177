"""Spans by OpenTelemetry's API, which are no-ops unless the program has set up an SDK.

No span keeps the message of an error, which may quote rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_HEADER = TraceContextTextMapPropagator()


def is_set_up() -> bool:
    """Return whether the program has set up an SDK, so that spans are recorded."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def span(scope: str, name: str, **options: Any) -> Iterator[Span]:
    """Run the block in a span that is current and ends with it; errors of the block propagate.

    `scope` names the part of the system; `options` are those of `Tracer.start_as_current_span`.
    """
    with trace.get_tracer(scope).start_as_current_span(
        name, record_exception=False, set_status_on_exception=False, **options
    ) as made:
        yield made


@contextmanager
def failing_span(scope: str, name: str, **options: Any) -> Iterator[Span]:
    """As `span`; an error of the block is recorded by its class."""
    with span(scope, name, **options) as made:
        try:
            yield made
        except BaseException as error:
            kind = type(error)
            made.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}")
            made.set_status(trace.StatusCode.ERROR)
            raise


def traceparent_of(made: Span) -> str | None:
    """Return the W3C header of a span; None without tracing."""
    carrier: dict[str, str] = {}
    _HEADER.inject(carrier, trace.set_span_in_context(made))
    return carrier.get("traceparent")


def context_of(traceparent: str | None) -> Context:
    """Return the context that a W3C header names; an empty one without a valid header."""
    return _HEADER.extract({} if traceparent is None else {"traceparent": traceparent})
