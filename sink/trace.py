"""A span for each batch where the program has set up OpenTelemetry; otherwise a no-op.

Attributes are named as in OpenTelemetry's conventions for messaging and databases where these have
a name, and `holdfast.*` elsewhere. A span never holds a row, a key, a statement or a DSN: of an
error it records the class and the SQLSTATE only, because messages may quote rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from opentelemetry.trace import Span, SpanKind

from holdfast.sink.contract.spans import failing_span, traceparent_of

if TYPE_CHECKING:
    from holdfast.sink.rows.outcome import Replayed, Written


class BatchSpan:
    """The span of one batch; without an SDK it has no traceparent and records nothing."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def traceparent(self) -> str | None:
        """The W3C header of this span, for entries without one; None without tracing."""
        return traceparent_of(self._span)

    def written(self, outcome: "Written | Replayed") -> None:
        """Record the outcome of the batch: the counts of its ledger row."""
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

    Errors of the block propagate. Without an SDK this is a no-op:

    >>> with batch_span("payouts", UUID(int=1), 0) as span:
    ...     print(span.traceparent)
    None
    """
    attributes = {
        "messaging.system": "holdfast",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": stream,
        "db.system.name": "postgresql",
        "holdfast.query_id": str(query_id),
        "holdfast.batch_id": batch_id,
    }
    with failing_span(
        "holdfast.sink", f"send {stream}", kind=SpanKind.PRODUCER, attributes=attributes
    ) as span:
        try:
            yield BatchSpan(span)
        except BaseException as error:
            for each in (error, error.__cause__):
                if isinstance(state := getattr(each, "sqlstate", None), str):
                    span.set_attribute("db.response.status_code", state)
                    break
            raise
