"""The queries that are compared: the job's own, and Spark's operators over the same events.

`run` is called in a process of its own, because what one case makes hot another would inherit. The
JVM's start is not counted, nor is a first query over a little input, which compiles code.

Spark's do less than the job: no validation, no holds and decisions, no record of what came late or
twice, no correction of a window that was emitted. Their watermark waits as long as the job's delay
and cutoff together, so that all take the same late events. State lies in RocksDB with changelogs,
in as many partitions as the job's; JVM options and encodings are Spark's defaults.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from holdfast.deploy.local.java import spark_environment
from holdfast.spark_app.input import connector
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.kafka_options import connection
from holdfast.spark_app.input.source import PARQUET_DDL, parquet_amounts
from holdfast.spark_app.input.sources import Kafka
from holdfast.spark_app.operator.groups import STATE_PARTITIONS
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.launch import Launch
from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.operator import ours
from tests.benchmarks.operator.ours import CUTOFF_S, DELAY_S, WINDOW_S, Each

CUTOFF_MS = CUTOFF_S * 1000
JSON_DDL = "event_id STRING, merchant_id STRING, amount_minor LONG, occurred_at TIMESTAMP"
"""What the sums need: Spark parses no other field."""


@dataclass(frozen=True, slots=True)
class Input:
    """A folder of event files, one a batch; or a topic with the same events."""

    folder: str
    servers: str = ""
    topic: str = ""
    per_batch: int = 0

    @property
    def jars(self) -> Any:
        """The settings of a session that reads a topic."""
        return connector.find((), ()).settings if self.servers else {}


def plain_session(conf: dict[str, Any] | None = None) -> SparkSession:
    """Start Spark without Holdfast on all cores; `conf` are more settings of it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    store = "spark.sql.streaming.stateStore"
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": STATE_PARTITIONS,
        f"{store}.providerClass": provider,
        f"{store}.rocksdb.changelogCheckpointing.enabled": True,
        # Counting rows costs a lookup for each write; the job has it off as well.
        f"{store}.rocksdb.trackTotalNumberOfRows": False,
        **(conf or {}),
    }
    return SparkSession.builder.appName("bench").config(map=settings).getOrCreate()


def _job(spark: SparkSession, events: Input, checkpoint: str, each: Each) -> StreamingQuery:
    """The job's own query."""
    if not events.per_batch:
        return ours.run(spark, events.folder, checkpoint, each)
    source: dict[str, Any] = {"format": Format.JSON}
    if events.topic:
        connected = connection(events.servers, (), events.per_batch, accept_data_loss=False)
        topic = (Kafka(events.topic),)
        source |= {"paths": (), "topics": topic, "connection": connected}
        source["max_files_per_trigger"] = None
    return ours.run(spark, events.folder, checkpoint, each, **source)


def aggregate(spark: SparkSession, source: Input, checkpoint: str, each: Each) -> StreamingQuery:
    """Deduplicate within the watermark, then a sum per merchant and window, append mode."""
    sums = (
        _rows(spark, source)
        .withWatermark("occurred_at", f"{DELAY_S + CUTOFF_S} seconds")
        .dropDuplicatesWithinWatermark(["event_id"])
        .groupBy(F.window("occurred_at", f"{WINDOW_S} seconds").alias("w"), "merchant_id")
        .agg(F.sum("amount_minor").alias("exposure_minor"))
        .select("merchant_id", F.col("w.end").alias("window_end"), "exposure_minor")
    )
    return _started(sums.writeStream.outputMode("append").foreachBatch(each), checkpoint)


def _noop(spark: SparkSession, source: Input, checkpoint: str, _each: Each) -> StreamingQuery:
    """Read keys and values of the topic, and nothing else."""
    return _started(_records(spark, source).writeStream.format("noop"), checkpoint)


def _textbook(spark: SparkSession, source: Input, checkpoint: str, each: Each) -> StreamingQuery:
    """One state per merchant, as in the guides for `transformWithState` in Python."""
    end = F.unix_millis(F.window("occurred_at", f"{WINDOW_S} seconds")["end"])
    rows = _rows(spark, source).withWatermark("occurred_at", f"{DELAY_S} seconds")
    states = (
        rows.select("merchant_id", "event_id", "amount_minor", end.alias("window_end_ms"))
        .groupBy("merchant_id")
        .transformWithState(
            statefulProcessor=Exposure(),
            outputStructType="merchant_id string, window_end_ms bigint, exposure_minor bigint",
            outputMode="Update",
            timeMode="EventTime",
        )
    )
    return _started(states.writeStream.outputMode("update").foreachBatch(each), checkpoint)


class Exposure(StatefulProcessor):
    """The exposure of one merchant.

    One map from window end to the sum and the ids absorbed in it, one timer for each window. A
    window is emitted once, when the cutoff has passed, and forgotten with that.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._windows = handle.getMapState(
            "windows", "window_end_ms bigint", "exposure_minor bigint, ids array<string>"
        )

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002 - Spark passes it by name
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        changed: dict[int, tuple[int, set[str]]] = {}
        for row in rows:
            end = row.window_end_ms
            if end + CUTOFF_MS <= watermark_ms:
                continue
            exposure, ids = changed.get(end) or self._read(end)
            if row.event_id not in ids:
                exposure += row.amount_minor
                ids.add(row.event_id)
            changed[end] = exposure, ids
        for end, (exposure, ids) in changed.items():
            self._windows.updateValue((end,), (exposure, sorted(ids)))
        return iter([])

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name, passed by it
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        end = expiredTimerInfo.getExpiryTimeInMs() - CUTOFF_MS
        exposure, _ = self._windows.getValue((end,))
        self._windows.removeKey((end,))
        yield Row(merchant_id=key[0], window_end_ms=end, exposure_minor=exposure)

    def _read(self, end: int) -> tuple[int, set[str]]:
        stored = self._windows.getValue((end,))
        if stored is None:
            self._handle.registerTimer(end + CUTOFF_MS)
            return 0, set()
        exposure, ids = stored
        return exposure, set(ids)


def _rows(spark: SparkSession, source: Input) -> DataFrame:
    if source.topic:
        event = F.from_json(F.col("value").cast("string"), JSON_DDL)
        return _records(spark, source).select(event.alias("event")).select("event.*")
    files = spark.readStream.option("maxFilesPerTrigger", 1).schema(PARQUET_DDL)
    return parquet_amounts(files.parquet(source.folder))


def _records(spark: SparkSession, source: Input) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": source.servers,
        "subscribe": source.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(source.per_batch),
    }
    return spark.readStream.format("kafka").options(**options).load().select("value")


def _started(writer: Any, checkpoint: str) -> StreamingQuery:
    query: StreamingQuery = (
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    return query


QUERIES = {"job": _job, "aggregate": aggregate, "textbook": _textbook, "noop": _noop}


def run(query: str, warm: dict[str, Any], events: dict[str, Any]) -> dict[str, Any]:
    """Run a query over a little input, and over the events; returns what the second took.

    In foreachBatch is one `toArrow`, whose result is held: `_answer` is what it comes to.
    """
    os.environ.update(spark_environment())
    source, small = Input(**events), Input(**warm)
    if query == "job":
        conf = Launch(conf=source.jars) if source.servers else None
        spark = session.create("holdfast bench", **({"launch": conf} if conf else {}))
    else:
        spark = plain_session(source.jars)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        _measured(query, spark, small, Path(folder) / "warm")
        result = _measured(query, spark, source, Path(folder) / "checkpoint")
        spark.stop()
    return result


def _measured(name: str, spark: SparkSession, source: Input, checkpoint: Path) -> dict[str, Any]:
    kept: list[pa.Table] = []
    cpu, began = processor_seconds(), time.perf_counter()
    each = lambda df, _id: kept.append(df.toArrow())  # noqa: E731 - the one action of a batch
    query = QUERIES[name](spark, source, str(checkpoint), each)
    query.awaitTermination()
    seconds, cpu = time.perf_counter() - began, processor_seconds() - cpu
    progress = query.recentProgress
    events = sum(batch.numInputRows for batch in progress)
    windows = [_windows(name, [table]) for table in kept]
    operators = (each for batch in progress for each in batch.stateOperators)
    return {
        "events/s": events / seconds,
        "processor s per M": cpu / events * 1e6,
        "events": events,
        "_dropped": sum(each.numRowsDroppedByWatermark for each in operators),
        "_answer": [
            sum(map(len, windows)),
            sum(pc.sum(t["exposure_minor"]).as_py() or 0 for t in windows),
        ],
        "_batches": [
            {"rows": b.numInputRows, "ms": b.durationMs["triggerExecution"], "emitted": emitted}
            for b, emitted in zip(progress, map(len, windows), strict=False)
        ],
    }


def _windows(name: str, batches: list[pa.Table]) -> pa.Table:
    return ours.windows(batches) if name == "job" else pa.concat_tables(batches)


def disagreements(runs: dict[str, list[Any]]) -> dict[str, str]:
    """What runs over the same files found differently, and what Spark dropped as late."""
    faults: dict[str, str] = {}
    first: dict[int, tuple[str, Any]] = {}
    for name, each in runs.items():
        for run_ in each:
            if name.endswith("noop"):
                continue
            other, answer = first.setdefault(run_["events"], (name, run_["_answer"]))
            if answer != run_["_answer"]:
                faults[f"{name} disagrees"] = f"{run_['_answer']}, but {answer} by {other}"
            if run_["_dropped"]:
                faults[f"{name} drops"] = f"Spark dropped {run_['_dropped']} rows as late"
    return faults
