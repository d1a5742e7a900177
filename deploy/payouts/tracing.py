"""A span for each delivery that arrives where OpenTelemetry is set up; otherwise nothing.

It continues the trace of the header `traceparent`, which is that of the batch that decided.
"""

from contextlib import AbstractContextManager
from typing import Any

from opentelemetry.trace import SpanKind

from holdfast.receiver import Delivery
from holdfast.sink.contract.spans import context_of, span


def delivery(found: Delivery, traceparent: str | None) -> AbstractContextManager[Any]:
    """Run the block in the span of a delivery, which holds no subject and no key."""
    return span(
        "holdfast.payouts",
        "holdfast.receive",
        context=context_of(traceparent),
        kind=SpanKind.CONSUMER,
        attributes={
            "messaging.system": "holdfast",
            "messaging.operation.name": "receive",
            "messaging.operation.type": "process",
            "messaging.message.body.size": len(found.raw),
        },
    )
