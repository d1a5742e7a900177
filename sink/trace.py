"""A span for each batch where the program has set up OpenTelemetry; otherwise a no-op.

Attributes are named as in OpenTelemetry's conventions for messaging and databases where these have
a name, and `holdfast.*` elsewhere. A span never holds a row, a key, a statement or a DSN: of an
error it records the class and the SQLSTATE only, because messages may quote rows.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from holdfast.sink.transaction.ledger import Replayed, Written

_NAME = "holdfast.sink"


class BatchSpan:
    """The span of one batch; without OpenTelemetry it has no traceparent and records nothing.

    >>> BatchSpan(None).traceparent is None
    True
    """

    def __init__(self, span: "Span | None") -> None:
        self._span = span

    @property
    def traceparent(self) -> str | None:
        """The W3C header of this span, for entries without one; None without tracing."""
        if self._span is None:
            return None
        api, propagation = _api(), import_module("opentelemetry.trace.propagation.tracecontext")
        carrier: dict[str, str] = {}
        propagation.TraceContextTextMapPropagator().inject(
            carrier, api.set_span_in_context(self._span)
        )
        return carrier.get("traceparent")

    def written(self, outcome: "Written | Replayed") -> None:
        """Record the outcome of the batch: the counts of its ledger row."""
        if self._span is None:
            return
        counts = outcome.counts
        self._span.set_attributes(
            {
                "messaging.batch.message_count": counts.entries,
                "holdfast.outcome": type(outcome).__name__.lower(),
                "holdfast.batch.rows": counts.rows,
                "holdfast.batch.duplicates": counts.duplicates,
                "holdfast.batch.differing": counts.differing,
                "holdfast.batch.suppressed": counts.suppressed,
                "holdfast.batch.quarantined": counts.quarantined,
            }
        )


@contextmanager
def batch_span(stream: str, query_id: UUID, batch_id: int) -> Iterator[BatchSpan]:
    """Run the block in a span that is current in this thread and ends with the block.

    Errors of the block propagate. Without opentelemetry-api, or without an SDK, this is a no-op:

    >>> with batch_span("payouts", UUID(int=1), 0) as span:
    ...     print(span.traceparent)
    None
    """
    tracer = _tracer()
    if tracer is None:
        yield BatchSpan(None)
        return
    attributes: Mapping[str, str | int] = {
        "messaging.system": "holdfast",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": stream,
        "db.system.name": "postgresql",
        "holdfast.query_id": str(query_id),
        "holdfast.batch_id": batch_id,
    }
    with tracer.start_as_current_span(
        f"send {stream}",
        kind=_api().SpanKind.PRODUCER,
        attributes=attributes,
        # Both would record the message of an error, which may quote rows.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield BatchSpan(span)
        except BaseException as error:
            _failed(span, error)
            raise


def _failed(span: "Span", error: BaseException) -> None:
    kind = type(error)
    span.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}")
    state = next(
        (
            found
            for each in (error, error.__cause__)
            if isinstance(found := getattr(each, "sqlstate", None), str)
        ),
        None,
    )
    if state is not None:
        span.set_attribute("db.response.status_code", state)
    span.set_status(_api().StatusCode.ERROR)


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
