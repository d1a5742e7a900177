"""(a) and (b): this sink."""

from pathlib import Path
from typing import Literal
from uuid import uuid4

from pyspark.sql import DataFrame

from holdfast.sink import OutboxSink
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.benchmarks.sink.query import play
from tests.benchmarks.sink.rows import DECISIONS_DDL, batch_count, read_batch
from tests.benchmarks.sink.stopwatch import Lap, Stopwatch

STREAM = "bench"


def driver(dsn: str, folder: Path) -> list[Lap]:
    """Through the driver: from the rows as a DataFrame to COMMIT."""
    return _in_query(dsn, folder, "driver")


def staged(dsn: str, folder: Path) -> list[Lap]:
    """Spark's tasks copy their rows, the driver promotes them."""
    return _in_query(dsn, folder, "staged")


def library(dsn: str, folder: Path) -> list[Lap]:
    """The driver path without Spark: from an Arrow table to COMMIT."""
    writer, watch = Writer(dsn, STREAM), Stopwatch()
    writer.begin_run(uuid4(), uuid4())
    for number in range(batch_count(folder / "decisions")):
        table = read_batch(folder / "decisions", number)
        with watch.lap():
            writer.write(number, InDriver(prepare(BatchInput(table))))
    writer.close()
    return watch.laps


def _in_query(dsn: str, folder: Path, path: Literal["driver", "staged"]) -> list[Lap]:
    sink, watch = OutboxSink(dsn, stream=STREAM, path=path), Stopwatch()

    def each(df: DataFrame, batch_id: int) -> None:
        with watch.lap():
            sink(df, batch_id)

    play(folder / "decisions", DECISIONS_DDL, each)
    sink.close()
    return watch.laps
