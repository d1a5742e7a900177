"""The driver's memory while one large batch is written; a process of its own.

`python -m tests.benchmarks.sink.memory PATH FOLDER`: FOLDER has a small batch, after which the
baseline is taken, and the large one. The driver is this process and its JVM, which in local mode
also runs the tasks; the tasks' Python workers are not part of it. The server's pid is in the
variable `SERVER_PID` where there is one. The last line of stdout is JSON.
"""

import argparse
import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import psycopg
from pyspark.sql import DataFrame

from holdfast.sink import OutboxSink
from tests.benchmarks.common.processes import PeakMemory, PeakRss, driver_bytes
from tests.benchmarks.sink import check
from tests.benchmarks.sink.ours import STREAM
from tests.benchmarks.sink.query import play
from tests.benchmarks.sink.rows import DECISIONS_DDL, decisions, write_batch
from tests.benchmarks.sink.stopwatch import SERVER_PID

EVERY_S = 0.05


def prepare_files(folder: Path, rows: int, subjects: int) -> None:
    """Write a small batch and a large one of so many rows."""
    small = max(rows // 100, 1)
    write_batch(folder / "decisions", 0, decisions(0, small, subjects))
    write_batch(folder / "decisions", 1, decisions(small, rows, subjects))


def measure(dsn: str, path: Literal["driver", "staged"], folder: Path) -> dict[str, Any]:
    """Write both batches and watch the second."""
    sink = OutboxSink(dsn, stream=STREAM, path=path)
    found: dict[str, Any] = {"path": path}

    def each(df: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            sink(df, batch_id)
            return
        found["baseline_bytes"] = driver_bytes()
        server = os.environ.get(SERVER_PID)
        with ExitStack() as stack:
            peak = stack.enter_context(PeakMemory(EVERY_S))
            postgres = (
                stack.enter_context(PeakRss(int(server), shared_once=True)) if server else None
            )
            began = time.perf_counter()
            sink(df, batch_id)
            found["seconds"] = time.perf_counter() - began
        found["peak_bytes"] = peak.driver
        found["above_bytes"] = peak.driver - found["baseline_bytes"]
        found["workers_peak_bytes"] = peak.python
        found["postgres_peak_bytes"] = postgres.bytes if postgres else None

    play(folder / "decisions", DECISIONS_DDL, each)
    sink.close()
    check.outbox(dsn, folder)
    with psycopg.connect(dsn) as connection:
        size = connection.execute(
            "SELECT count(*), sum(octet_length(body)) FROM holdfast.entry JOIN holdfast.batch"
            " USING (batch_no) WHERE batch_id = 1"
        ).fetchone()
    found["rows"], found["entry_bytes"] = (int(value) for value in size or (0, 0))
    return found


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", choices=("driver", "staged"))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    print(json.dumps(measure(os.environ["HOLDFAST_DSN"], given.path, given.folder)))


if __name__ == "__main__":
    main()
