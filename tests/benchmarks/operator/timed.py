"""`holdfast job run` that notes when each part of its start ends, and what each batch took.

`python -m tests.benchmarks.operator.timed NOTES OPTIONS...`: NOTES gets one JSON object a line,
`{"at": seconds since 1970, "what": ..., ...}`, with Spark's report of each batch (`batch`), and how
long its sink was called and how long that wrote (`sunk`). The job itself is the product's.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryProgress

from holdfast.dispatcher.cli.main import main
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.sink.rows.outcome import Replayed, Written
from holdfast.sink.session import Identity
from holdfast.spark_app.lifecycle import run
from holdfast.spark_app.reporting.metrics import Metrics, State
from holdfast.spark_app.runtime import session


def install(notes: Path) -> None:
    """Put a stopwatch where the job reports its state and its batches, and around its sink."""
    create = session.create

    def note(what: str, **more: Any) -> None:
        line = json.dumps({"at": time.time(), "what": what, **more})
        with notes.open("a") as file:
            file.write(line + "\n")

    def timed_create(*arguments: Any, **more: Any) -> Any:
        note("python")
        spark = create(*arguments, **more)
        note("session")
        return spark

    class TimedMetrics(Metrics):
        def enter(self, state: State) -> None:
            super().enter(state)
            if state is State.RUNNING:
                note("query")

        def recorded(self, progress: StreamingQueryProgress) -> None:
            super().recorded(progress)
            note("batch", progress=json.loads(progress.json))

    class TimedSink(OutboxSink):
        _write_s = 0.0

        def __call__(self, df: DataFrame, batch_id: int) -> None:
            self._write_s, began = 0.0, time.perf_counter()
            super().__call__(df, batch_id)
            call_ms = (time.perf_counter() - began) * 1000
            note("sunk", batch=batch_id, call=call_ms, write=self._write_s * 1000)

        def apply(self, table: pa.Table, identity: Identity) -> Written | Replayed:
            began = time.perf_counter()
            try:
                return super().apply(table, identity)
            finally:
                self._write_s = time.perf_counter() - began

    vars(session)["create"] = timed_create
    vars(run).update(Metrics=TimedMetrics, OutboxSink=TimedSink)


if __name__ == "__main__":
    install(Path(sys.argv.pop(1)))
    sys.argv[1:1] = ["job", "run"]
    main()
