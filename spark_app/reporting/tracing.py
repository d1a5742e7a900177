"""A span for each batch of the job where OpenTelemetry is set up; otherwise nothing.

It is current while the batch is computed and written, so the sink's span is its child. It never
holds a row, a key or a message: of an error it records the class.
"""

from contextlib import AbstractContextManager
from typing import Any

from holdfast.sink.contract.spans import failing_span


def batch(batch_id: int) -> AbstractContextManager[Any]:
    """Run the block in the span of a batch. Errors of the block propagate."""
    attributes = {"holdfast.batch_id": batch_id}
    return failing_span("holdfast.job", "holdfast.batch", attributes=attributes)
