"""The sink library: `df.writeStream.foreachBatch(OutboxSink(dsn, stream=...))`.

The public names load on first use, so that importing the contract (`holdfast.sink.contract`), as
the dispatcher and the receiver do, never imports psycopg, pyarrow or pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.sink.contract.extras import needs

if TYPE_CHECKING:
    from holdfast.sink.errors import (
        AccessDenied,
        BatchTooLarge,
        CheckpointBehind,
        CheckpointReplaced,
        CheckpointUnreadable,
        CompanionFailed,
        Fenced,
        LedgerBehind,
        NotPrimary,
        NotStreaming,
        Permanent,
        ReplayDiverged,
        SchemaMismatch,
        SinkError,
        SinkUnavailable,
        TooManyRefused,
        Transient,
        UnadoptedCheckpoint,
        UnsafeCheckpoint,
    )
    from holdfast.sink.foreach_batch import OutboxSink
    from holdfast.sink.rows.batch import BatchInput, reject
    from holdfast.sink.rows.outcome import Counts, Replayed, Written
    from holdfast.sink.rows.quarantine_limit import QuarantineLimit
    from holdfast.sink.transaction.companion import BatchContext
    from holdfast.sink.transaction.continuation import Continuation, Repeated
    from holdfast.sink.transaction.database import Timeouts
    from holdfast.sink.transaction.staging import StageLost

_HOME = {
    "AccessDenied": "holdfast.sink.errors",
    "BatchContext": "holdfast.sink.transaction.companion",
    "BatchInput": "holdfast.sink.rows.batch",
    "BatchTooLarge": "holdfast.sink.errors",
    "CheckpointBehind": "holdfast.sink.errors",
    "CheckpointReplaced": "holdfast.sink.errors",
    "CheckpointUnreadable": "holdfast.sink.errors",
    "CompanionFailed": "holdfast.sink.errors",
    "Continuation": "holdfast.sink.transaction.continuation",
    "Counts": "holdfast.sink.rows.outcome",
    "Fenced": "holdfast.sink.errors",
    "LedgerBehind": "holdfast.sink.errors",
    "NotPrimary": "holdfast.sink.errors",
    "NotStreaming": "holdfast.sink.errors",
    "OutboxSink": "holdfast.sink.foreach_batch",
    "Permanent": "holdfast.sink.errors",
    "QuarantineLimit": "holdfast.sink.rows.quarantine_limit",
    "ReplayDiverged": "holdfast.sink.errors",
    "Repeated": "holdfast.sink.transaction.continuation",
    "Replayed": "holdfast.sink.rows.outcome",
    "SchemaMismatch": "holdfast.sink.errors",
    "SinkError": "holdfast.sink.errors",
    "SinkUnavailable": "holdfast.sink.errors",
    "StageLost": "holdfast.sink.transaction.staging",
    "Timeouts": "holdfast.sink.transaction.database",
    "TooManyRefused": "holdfast.sink.errors",
    "Transient": "holdfast.sink.errors",
    "UnadoptedCheckpoint": "holdfast.sink.errors",
    "UnsafeCheckpoint": "holdfast.sink.errors",
    "Written": "holdfast.sink.rows.outcome",
    "reject": "holdfast.sink.rows.batch",
}

__all__ = [
    "AccessDenied",
    "BatchContext",
    "BatchInput",
    "BatchTooLarge",
    "CheckpointBehind",
    "CheckpointReplaced",
    "CheckpointUnreadable",
    "CompanionFailed",
    "Continuation",
    "Counts",
    "Fenced",
    "LedgerBehind",
    "NotPrimary",
    "NotStreaming",
    "OutboxSink",
    "Permanent",
    "QuarantineLimit",
    "Repeated",
    "ReplayDiverged",
    "Replayed",
    "SchemaMismatch",
    "SinkError",
    "SinkUnavailable",
    "StageLost",
    "Timeouts",
    "TooManyRefused",
    "Transient",
    "UnadoptedCheckpoint",
    "UnsafeCheckpoint",
    "Written",
    "reject",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        with needs(f"holdfast.sink.{name}", "sink", "numpy", "pyarrow"):
            return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'holdfast.sink' has no attribute {name!r}")
