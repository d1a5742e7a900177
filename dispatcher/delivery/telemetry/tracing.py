"""A span for each attempt where the process has set up OpenTelemetry; otherwise nothing.

An attempt is a trace of its own with a link to the entry's `traceparent`: a batch may have more
entries than a trace can hold, and its retries take days. A span never holds a subject, a key, a URL
or a body. Of a failure it holds only the outcome, because error messages may quote data.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, get_current_span

from holdfast.dispatcher.delivery.rules.values import Attempt, Entry
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.spans import context_of, is_set_up, span
from holdfast.sink.contract.states import Outcome


class AttemptSpan:
    """The span of one attempt; without an SDK it records nothing."""

    def __init__(self, made: Span) -> None:
        self._span = made

    def judged(self, attempt: Attempt) -> None:
        """Record the outcome of the attempt."""
        self._span.set_attribute("holdfast.outcome", attempt.outcome.value)
        if attempt.status is not None:
            self._span.set_attribute("http.response.status_code", attempt.status)
        if attempt.outcome is not Outcome.DELIVERED:
            self._span.set_attribute("error.type", attempt.outcome.value)
            self._span.set_status(StatusCode.ERROR)


def attempt_spans() -> Callable[[Endpoint, Entry], AbstractContextManager[AttemptSpan]] | None:
    """Return `attempt_span`, or None where OpenTelemetry is not set up yet."""
    return attempt_span if is_set_up() else None


@contextmanager
def attempt_span(endpoint: Endpoint, entry: Entry) -> Iterator[AttemptSpan]:
    """Run a block as the current span of its task.

    Exceptions of the block propagate and are not recorded.
    """
    with span(
        "holdfast.dispatcher",
        "holdfast.deliver",
        # The attempt is a root span, even where the dispatcher's own task has a span.
        context=Context(),
        kind=SpanKind.CLIENT,
        attributes={
            "messaging.system": "holdfast",
            "messaging.operation.name": "deliver",
            "messaging.operation.type": "send",
            "messaging.destination.name": endpoint.name,
            "http.request.method": "POST",
            "holdfast.attempt": entry.number,
        },
        links=_links(entry.traceparent),
    ) as made:
        yield AttemptSpan(made)


def _links(traceparent: str | None) -> list[Link]:
    context = get_current_span(context_of(traceparent)).get_span_context()
    return [Link(context)] if context.is_valid else []
