"""The sink library: `df.writeStream.foreachBatch(OutboxSink(dsn, stream=...))`.

The public names load on first use, so that importing the contract (`sink.contract`), as the
dispatcher and the receiver do, never imports psycopg's writer, pyarrow or pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sink.batch import BatchInput
    from sink.errors import (
        BatchTooLarge,
        Fenced,
        ReplayDiverged,
        SchemaMismatch,
        SinkError,
        UnadoptedCheckpoint,
    )
    from sink.foreach_batch import OutboxSink
    from sink.writer import Replayed, Written

_HOME = {
    "BatchInput": "sink.batch",
    "BatchTooLarge": "sink.errors",
    "Fenced": "sink.errors",
    "OutboxSink": "sink.foreach_batch",
    "Replayed": "sink.writer",
    "ReplayDiverged": "sink.errors",
    "SchemaMismatch": "sink.errors",
    "SinkError": "sink.errors",
    "UnadoptedCheckpoint": "sink.errors",
    "Written": "sink.writer",
}

__all__ = [
    "BatchInput",
    "BatchTooLarge",
    "Fenced",
    "OutboxSink",
    "ReplayDiverged",
    "Replayed",
    "SchemaMismatch",
    "SinkError",
    "UnadoptedCheckpoint",
    "Written",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sink' has no attribute {name!r}")
