"""A span for each batch of the job where OpenTelemetry is set up; otherwise nothing.

It is current while the batch is computed and written, so the sink's span is its child. It never
holds a row, a key or a message: of an error it records the class.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

_NAME = "holdfast.job"


@contextmanager
def batch(batch_id: int) -> Iterator[None]:
    """Run the block in the span of a batch. Errors of the block propagate."""
    api = _api()
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        yield
        return
    with api.get_tracer(_NAME).start_as_current_span(
        "holdfast.batch",
        attributes={"holdfast.batch_id": batch_id},
        # Both would record the message of an error, which may quote rows.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            kind = type(error)
            span.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}")
            span.set_status(api.StatusCode.ERROR)
            raise


@cache
def _api() -> Any:
    """`opentelemetry.trace`, or None where it is not installed."""
    try:
        return import_module("opentelemetry.trace")
    except ModuleNotFoundError:
        return None
