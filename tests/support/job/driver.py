"""A Spark driver without Spark: it hands Arrow tables to an `OutboxSink`, one run of one query."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa

from holdfast.sink import BatchInput, OutboxSink, Replayed, Written
from holdfast.sink.session import Identity
from holdfast.sink.transaction.database import Timeouts
from holdfast.sink.transaction.staging import Stage, Summary, stage_rows
from tests.support.dispatch.sender import REFUSED, table

PATIENT = Timeouts(
    connect_seconds=10,
    lock_seconds=20,
    statement_seconds=30,
    idle_seconds=30,
    transaction_seconds=60,
    deadline_seconds=60,
)

PARTITIONS = 3


def in_tasks(rows: pa.Table) -> Callable[[Stage], list[Summary]]:
    """Stage every third row in a task of its own, one task after another."""

    def run_all(stage: Stage) -> list[Summary]:
        parts = [
            rows.take(pa.array(range(n, rows.num_rows, PARTITIONS), pa.int64()))
            for n in range(PARTITIONS)
        ]
        return [stage_rows(stage, n, [part], f"{n}/0") for n, part in enumerate(parts)]

    return run_all


class Driver:
    """One start of a streaming query. The checkpoint is its query id."""

    def __init__(
        self,
        dsn: str,
        *,
        query_id: UUID | None = None,
        stream: str = "payouts",
        staged: bool = False,
        **settings: Any,
    ) -> None:
        settings.setdefault("timeouts", PATIENT)
        settings.setdefault("suppress_repeats", True)
        self.sink = OutboxSink(dsn, stream=stream, **settings)
        self.staged = staged
        self.query_id = query_id or uuid4()
        self.run_id = uuid4()

    def batch(self, batch_id: int, *rows: dict[str, Any]) -> Written | Replayed:
        """Hand over one micro-batch of decisions."""
        return self.tables(batch_id, table(*rows))

    def tables(self, batch_id: int, rows: pa.Table) -> Written | Replayed:
        """Hand over one micro-batch as it is."""
        identity = Identity(self.query_id, self.run_id, batch_id)
        if self.staged:
            return self.sink.apply_staged(rows.schema, in_tasks(rows), identity)
        return self.sink.apply(rows, identity)


MakeDriver = Callable[..., Driver]


def set_aside(dsn: str, *rows: tuple[str, str], stream: str = "payouts") -> list[int]:
    """Write a batch with refused rows, each a reason and a text; return all rows' numbers."""
    refused = [{"reason": reason, "detail": "d", "row": row} for reason, row in rows]
    aside = pa.Table.from_pylist(refused, REFUSED)
    driver = Driver(dsn, stream=stream, select=lambda entries: BatchInput(entries, aside))
    driver.batch(0)
    driver.sink.close()
    with psycopg.connect(dsn) as connection:
        result_rows = connection.execute(
            "SELECT id FROM holdfast.quarantine ORDER BY id"
        ).fetchall()
    return [number for (number,) in result_rows]


def checkpoint_files(folder: Path, query_id: UUID, planned: int, committed: int) -> None:
    """Leave what Spark has in a checkpoint after its batches."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": str(query_id)}))
    for name, newest in (("offsets", planned), ("commits", committed)):
        (folder / name).mkdir(exist_ok=True)
        for batch in range(newest + 1):
            (folder / name / str(batch)).write_text("v1")
