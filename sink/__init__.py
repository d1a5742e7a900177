"""The sink library: `df.writeStream.foreachBatch(OutboxSink(dsn, stream=...))`.

The public names load on first use, so that importing the contract (`sink.contract`), as the
dispatcher and the receiver do, never imports psycopg, pyarrow or pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sink.errors import (
        AccessDenied,
        BatchTooLarge,
        CheckpointBehind,
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
    from sink.foreach_batch import OutboxSink
    from sink.rows.batch import BatchInput
    from sink.rows.quarantine_limit import QuarantineLimit
    from sink.transaction.continuation import Continuation, Repeated
    from sink.transaction.database import Timeouts
    from sink.transaction.ledger import Counts, Replayed, Written
    from sink.transaction.staging.stage import StageLost

_HOME = {
    "AccessDenied": "sink.errors",
    "BatchInput": "sink.rows.batch",
    "BatchTooLarge": "sink.errors",
    "CheckpointBehind": "sink.errors",
    "CheckpointUnreadable": "sink.errors",
    "CompanionFailed": "sink.errors",
    "Continuation": "sink.transaction.continuation",
    "Counts": "sink.transaction.ledger",
    "Fenced": "sink.errors",
    "LedgerBehind": "sink.errors",
    "NotPrimary": "sink.errors",
    "NotStreaming": "sink.errors",
    "OutboxSink": "sink.foreach_batch",
    "Permanent": "sink.errors",
    "QuarantineLimit": "sink.rows.quarantine_limit",
    "ReplayDiverged": "sink.errors",
    "Repeated": "sink.transaction.continuation",
    "Replayed": "sink.transaction.ledger",
    "SchemaMismatch": "sink.errors",
    "SinkError": "sink.errors",
    "SinkUnavailable": "sink.errors",
    "StageLost": "sink.transaction.staging.stage",
    "Timeouts": "sink.transaction.database",
    "TooManyRefused": "sink.errors",
    "Transient": "sink.errors",
    "UnadoptedCheckpoint": "sink.errors",
    "UnsafeCheckpoint": "sink.errors",
    "Written": "sink.transaction.ledger",
}

__all__ = [
    "AccessDenied",
    "BatchInput",
    "BatchTooLarge",
    "CheckpointBehind",
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
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sink' has no attribute {name!r}")
