"""`holdfast job run` that notes when each part of its start ends, and Spark's report of each batch.

`python -m tests.benchmarks.operator.timed NOTES OPTIONS...`: NOTES gets one JSON object a line,
`{"at": seconds since 1970, "what": ..., ...}`. The job itself is the product's, unchanged.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from holdfast.dispatcher.cli.main import main
from holdfast.spark_app.lifecycle import run
from holdfast.spark_app.reporting.metrics import Metrics, State
from holdfast.spark_app.runtime import session


def install(notes: Path) -> None:
    """Put a stopwatch where the job reports its state and its batches."""
    create = session.create

    def note(what: str, **more: Any) -> None:
        line = json.dumps({"at": time.time(), "what": what, **more})
        with notes.open("a") as file:
            file.write(line + "\n")

    def timed_create(*given: Any, **more: Any) -> Any:
        note("python")
        spark = create(*given, **more)
        note("session")
        return spark

    class Stopwatch(Metrics):
        def enter(self, state: State) -> None:
            super().enter(state)
            if state is State.RUNNING:
                note("query")

        def recorded(self, progress: StreamingQueryProgress) -> None:
            super().recorded(progress)
            note("batch", progress=json.loads(progress.json))

    vars(session)["create"] = timed_create
    vars(run)["Metrics"] = Stopwatch


if __name__ == "__main__":
    install(Path(sys.argv.pop(1)))
    sys.argv[1:1] = ["job", "run"]
    main()
