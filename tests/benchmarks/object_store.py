"""`make bench-object-store`: requests, bytes and time of a batch with its checkpoint on S3.

The store is moto on this machine, which counts; it answers later by a chosen latency. The exposure
job runs with a file a batch; its first batches are not counted. Money is that of the requests
alone, at the list price, for batches that begin in each second or each ten.
"""

import itertools
import os
import statistics
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote

from pyspark.sql import SparkSession

from holdfast.deploy.local.java import spark_environment
from holdfast.sink.contract.checkpoint import MANAGER_CLASS, MANAGER_SETTING, manager_jar
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.operator import output
from holdfast.spark_app.operator.job import Job, start
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.launch import Launch
from tests.benchmarks.common.runner import Bench, main
from tests.support.job.jobs import POLICY, event, put
from tests.support.servers.s3 import S3, s3

_CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing"

WAYS: dict[str, dict[str, str]] = {
    "renames": {MANAGER_SETTING: f"{_FILES}.FileSystemBasedCheckpointFileManager"},
    "conditional": {MANAGER_SETTING: MANAGER_CLASS},
    "no_checksum_files": {MANAGER_SETTING: MANAGER_CLASS, _CHECKSUMS: "false"},
}
"""Spark's own way with two drivers unsafe; ours, which is the job's default; ours with less."""

EUR_PER_USD = 0.90
USD_PER_1000 = {"PUT": 0.0054, "COPY": 0.0054, "LIST": 0.0054, "POST": 0.0054}
USD_PER_1000_READS = 0.00043
"""Amazon's list price of S3 Standard in Frankfurt, November 2026; DELETE is free."""

MONTH_S = 30 * 24 * 3600


COSTS = "Requests of a batch by kind, bytes, and euros a month"
TIMES = "Milliseconds of a batch by the latency of the store"


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    warm: int = 5
    """Batches before the measured ones; Spark compacts its log of files each ten."""
    batches: int = 20
    latencies_ms: tuple[int, ...] = (0, 5, 20, 50)
    partitions: int = 2
    quick: ClassVar = {"warm": 2, "batches": 10, "latencies_ms": (0,)}


def requests(bench: Bench[Sizes]) -> None:
    """What a batch asks of the store, and what it costs."""
    with s3() as store:
        spark = _spark(store)
        try:
            numbers = itertools.count()
            rows, times = [], []
            for latency_ms, name in itertools.product(bench.size.latencies_ms, bench.chosen(WAYS)):
                store.delay(latency_ms / 1000)
                log, batch_ms = _run(bench, store, spark, WAYS[name], next(numbers))
                store.delay(0)
                store_ms = _waited_ms(log) / bench.size.batches
                times.append(
                    {
                        "case": name,
                        "latency ms": latency_ms,
                        "store ms": store_ms,
                        "batch ms": batch_ms,
                    }
                )
                bench.say(name, latency_ms, "ms:", f"{batch_ms:.0f} ms a batch, {store_ms:.0f}")
                if latency_ms == bench.size.latencies_ms[0]:
                    rows.append({"case": name} | _costs(log, bench.size.batches))
        finally:
            spark.stop()
    bench.table(COSTS, rows, by="requests")
    bench.table(TIMES, times, by="store ms")


def _spark(store: S3) -> SparkSession:
    os.environ.update(spark_environment())
    jars = store.spark_settings["spark.jars"]
    conf = store.spark_settings | {"spark.jars": f"{jars},{manager_jar()}"}
    return session.create("bench", launch=Launch("local[2]", conf))


def _run(
    bench: Bench[Sizes], store: S3, spark: SparkSession, way: dict[str, str], number: int
) -> tuple[list[dict[str, Any]], float]:
    """Return the requests of the measured batches, and the median time of one."""
    size, folder = bench.size, bench.folder / f"run-{number}"
    own = session.fix(spark.newSession())
    for name, value in way.items():
        own.conf.set(name, value)
    job = Job(
        paths=(str(folder / "events"),),
        format=Format.JSON,
        checkpoint=f"{store.uri}/run-{number}",
        stream="payouts",
        policy=Policy.parse(POLICY),
        key_groups=8,
        partitions=size.partitions,
        max_files_per_trigger=1,
    )
    folder.mkdir()
    for file in range(size.warm + size.batches):
        lines = [event(f"e{file}-{n}", "12:01", 1, f"m_{n}") for n in range(200)]
        put(folder / "events", file, lines)
    # The renames are refused by the sink; without the checkpoint it does not look at them.
    safe = way[MANAGER_SETTING] == MANAGER_CLASS
    marks: list[int] = []
    log: list[dict[str, Any]] = []
    with bench.server.fresh() as dsn:
        sink = OutboxSink(
            dsn,
            stream="payouts",
            checkpoint=job.checkpoint if safe else None,
            select=output.select,
            also=output.writer("payouts"),
            suppress_repeats=True,
        )

        def counted(df: Any, batch_id: int) -> None:
            # From the middle of a batch to that of the next: one of each request.
            log.extend(store.requests())
            marks.append(len(log))
            sink(df, batch_id)

        with closing(sink):
            query = start(own, job, counted, available_now=True)
            query.awaitTermination()
            progress = [each for each in query.recentProgress if each["numInputRows"]]
    # Spark still looks after the state of a query that has ended.
    measured = log[marks[size.warm - 1] : marks[size.warm + size.batches - 1]]
    place = f"run-{number}/"
    chosen = [each for each in measured if place in unquote(f"{each['path']}?{each['query']}")]
    times = [each["durationMs"]["triggerExecution"] for each in progress[size.warm :]]
    return chosen, statistics.median(times)


def _waited_ms(log: list[dict[str, Any]]) -> float:
    """Return for how long at least one request was open: of those side by side, the longest."""
    waited, until = 0.0, 0.0
    for began, ended in sorted((each["began"], each["ended"]) for each in log):
        waited += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return 1000 * waited


def _kind(request: dict[str, Any]) -> str:
    if request["copied"]:
        return "COPY"
    is_list = request["method"] == "GET" and "list-type" in request["query"]
    return "LIST" if is_list else str(request["method"])


def _costs(log: list[dict[str, Any]], batches: int) -> dict[str, float]:
    counts = Counter(map(_kind, log))
    usd = sum(
        count * USD_PER_1000.get(kind, 0 if kind == "DELETE" else USD_PER_1000_READS) / 1000
        for kind, count in counts.items()
    )
    eur = usd / batches * EUR_PER_USD
    kinds = {kind: counts[kind] / batches for kind in ("PUT", "COPY", "LIST", "HEAD", "GET")}
    return {
        "requests": sum(counts.values()) / batches,
        **kinds,
        "DELETE": (counts["DELETE"] + counts["POST"]) / batches,
        "bytes sent": sum(each["sent"] for each in log) / batches,
        "bytes received": sum(each["received"] for each in log) / batches,
        "euros at 1 s": eur * MONTH_S,
        "euros at 10 s": eur * MONTH_S / 10,
    }


if __name__ == "__main__":
    main("object_store", Sizes, {"requests": requests}, about=__doc__ or "")
