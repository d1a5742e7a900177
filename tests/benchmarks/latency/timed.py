"""`holdfast job run` that also notes how long its sink takes: see `operator.timed`.

`python -m tests.benchmarks.latency.timed NOTES OPTIONS...`: of each batch
`{"what": "sunk", "batch": ..., "call": milliseconds, "write": milliseconds}`.
"""

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from holdfast.dispatcher.cli.main import main
from holdfast.sink.foreach_batch import Identity, OutboxSink
from holdfast.sink.transaction.ledger import Replayed, Written
from holdfast.spark_app.lifecycle import run
from tests.benchmarks.operator import timed


def install(notes: Path) -> None:
    """Put a stopwatch around the sink."""

    class Stopwatch(OutboxSink):
        _write_s = 0.0

        def __call__(self, df: DataFrame, batch_id: int) -> None:
            self._write_s, began = 0.0, time.perf_counter()
            super().__call__(df, batch_id)
            call = (time.perf_counter() - began) * 1000
            line = {"what": "sunk", "batch": batch_id, "call": call, "write": self._write_s * 1000}
            with notes.open("a") as file:
                file.write(json.dumps(line) + "\n")

        def apply(self, table: pa.Table, identity: Identity) -> Written | Replayed:
            began = time.perf_counter()
            try:
                return super().apply(table, identity)
            finally:
                self._write_s = time.perf_counter() - began

    vars(run)["OutboxSink"] = Stopwatch


if __name__ == "__main__":
    given = Path(sys.argv.pop(1))
    timed.install(given)
    install(given)
    sys.argv[1:1] = ["job", "run"]
    main()
