"""A Spark driver without Spark: it hands Arrow tables to an `OutboxSink`, one run of one query."""

from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa

from sink import OutboxSink, Replayed, Written
from sink.database import Timeouts
from sink.foreach_batch import Identity
from tests.support.entries import table

PATIENT = Timeouts(
    connect_seconds=10,
    lock_seconds=20,
    statement_seconds=30,
    idle_seconds=30,
    transaction_seconds=60,
    deadline_seconds=60,
)


class Driver:
    """One start of a streaming query. The checkpoint is its query id."""

    def __init__(
        self, dsn: str, *, query_id: UUID | None = None, stream: str = "payouts", **settings: Any
    ) -> None:
        settings.setdefault("timeouts", PATIENT)
        self.sink = OutboxSink(dsn, stream=stream, **settings)
        self.query_id = query_id or uuid4()
        self.run_id = uuid4()

    def batch(self, batch_id: int, *rows: dict[str, Any]) -> Written | Replayed:
        """Hand over one micro-batch of decisions."""
        return self.tables(batch_id, table(*rows))

    def tables(self, batch_id: int, rows: pa.Table) -> Written | Replayed:
        """Hand over one micro-batch as it is."""
        return self.sink.apply(rows, Identity(self.query_id, self.run_id, batch_id))
