"""A span for each delivery that arrives where OpenTelemetry is set up; otherwise nothing.

It continues the trace of the header `traceparent`, which is that of the batch that decided.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from holdfast.receiver import Delivery

_NAME = "holdfast.payouts"


@contextmanager
def delivery(found: Delivery, traceparent: str | None) -> Iterator[None]:
    """Run the block in the span of a delivery, which holds no subject and no key."""
    api = _api()
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        yield
        return
    propagation = import_module("opentelemetry.trace.propagation.tracecontext")
    carrier = {} if traceparent is None else {"traceparent": traceparent}
    with api.get_tracer(_NAME).start_as_current_span(
        "holdfast.receive",
        context=propagation.TraceContextTextMapPropagator().extract(carrier),
        kind=api.SpanKind.CONSUMER,
        attributes={
            "messaging.system": "holdfast",
            "messaging.operation.name": "receive",
            "messaging.operation.type": "process",
            "messaging.message.body.size": len(found.raw),
        },
        # Both would record the message of an error, which may quote data.
        record_exception=False,
        set_status_on_exception=False,
    ):
        yield


@cache
def _api() -> Any:
    """`opentelemetry.trace`, or None where it is not installed."""
    try:
        return import_module("opentelemetry.trace")
    except ModuleNotFoundError:
        return None
