"""`make bench-cluster`: the job by where its tasks run; the driver by decisions of a batch."""

import itertools
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import psutil
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.common.server import Server
from tests.benchmarks.operator import events
from tests.benchmarks.operator.events import SECOND_US, START_US
from tests.benchmarks.operator.job import Batch, Running, job
from tests.support.cluster.standalone import options, standalone
from tests.support.processes import java_below

WARM = 2
"""Files that do not count."""
CASES = {"local[1]": 0, "one executor": 1, "local[2]": 0, "two executors": 2}
"""Workers of each case, with one executor of one core each; a name without any is the master."""

RATIOS = {
    "two_executors_vs_local_2": ("two executors", "local[2]"),
    "one_executor_vs_local_1": ("one executor", "local[1]"),
    "two_executors_vs_one": ("two executors", "one executor"),
    "local_2_vs_local_1": ("local[2]", "local[1]"),
}
# As the driver's JVM, which here does not compile well later.
JAVA = "spark.executor.extraJavaOptions=-Xss4m"

OVER_THE_LIMIT = 30_000_000
LATER_US = 1_200 * SECOND_US


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    rounds: int = 3
    files: int = 5
    """A batch each, and WARM more."""
    per_file: int = 200_000
    merchants: int = 50_000
    decisions: tuple[int, ...] = (100_000, 300_000, 1_000_000)
    """Of one batch."""
    quick: ClassVar = {
        "rounds": 1,
        "files": 1,
        "per_file": 5_000,
        "merchants": 500,
        "decisions": (1_000,),
    }


def driver(bench: Bench[Sizes]) -> None:
    """Memory and time of the driver by the decisions of one batch, which all come to it.

    Every merchant is over its limit in one window, and a later event closes it: the batch without
    rows that follows has as many decisions, each with its window, as there are merchants.
    """
    rows = [
        _closing(bench.folder / f"driver-{decisions}", bench.server, decisions)
        for decisions in bench.size.decisions
    ]
    bench.table("The driver by the decisions of one batch, once each", rows)


def _closing(folder: Path, server_: Server, decisions: int) -> dict[str, Any]:
    (folder / "events").mkdir(parents=True)
    _write(folder / "events" / "0.parquet", decisions, START_US)
    with (
        server_.fresh() as dsn,
        psycopg.connect(dsn, autocommit=True) as db,
        job(folder, dsn, "bench", options=("--master", "local[2]", "--partitions", "2")) as running,
    ):
        running.job.until(lambda: running.batches)
        running.settle()
        before = peak = _memory(running)
        _write(folder / "events" / "1.parquet", 1, START_US + LATER_US)

        def closing() -> Batch | None:
            nonlocal peak
            peak = tuple(map(max, peak, _memory(running)))
            wrote = db.execute("SELECT max(batch_id) FROM holdfast.batch WHERE entry_count > 0")
            (number,) = wrote.fetchone() or (None,)
            return next((each for each in running.batches if each.number == number), None)

        running.job.until(closing)
        batch = closing()
        counted = db.execute("SELECT count(*) FROM holdfast.entry").fetchone()
    if batch is None or counted != (decisions,):
        raise RuntimeError(f"{counted} decisions were written")
    python, java = ((after - was) / 1e6 for after, was in zip(peak, before, strict=True))
    row = {"decisions": decisions, "batch, s": batch.seconds, "Python MB more": python}
    return {**row, "JVM MB more": java, "Python KB each": python * 1e3 / decisions}


def _memory(running: Running) -> tuple[int, ...]:
    """Resident bytes of the driver's Python process and of its JVM."""
    java = sum(each.memory_info().rss for each in java_below(running.pid))
    return psutil.Process(running.pid).memory_info().rss, java


def _write(path: Path, count: int, occurred_us: int) -> None:
    """Write an event over the limit for each of so many merchants, at one moment."""
    table = pa.table(
        {
            "event_id": pa.array([f"evt_{occurred_us}_{n}" for n in range(count)]),
            "merchant_id": pa.array([f"m_{n:08x}" for n in range(count)]),
            "type": pa.repeat("payout_submitted", count),
            "amount_minor": pa.repeat(OVER_THE_LIMIT, count),
            "currency": pa.repeat("USD", count),
            "occurred_at": pa.repeat(occurred_us, count).view(pa.timestamp("us", "UTC")),
        }
    )
    part = path.with_name(f".{path.name}")
    pq.write_table(table, part, row_group_size=50_000)
    part.rename(path)


def throughput(bench: Bench[Sizes]) -> None:
    """The real job, with its sink, on a real Postgres, over the same files.

    A rate is of batches with rows, from their start to Spark's record of them. Master, workers and
    executors count towards the processor time. All must write the same digests.
    """
    size, pool, numbers = bench.size, bench.folder / "pool", itertools.count()
    events.write(pool, events.Shape(WARM + size.files, size.per_file, size.merchants))
    digests = set[tuple[bytes, ...]]()

    def run(name: str) -> Run:
        figures, wrote = _run(bench.folder / f"run-{next(numbers)}", bench.server, name, pool)
        digests.add(wrote)
        if len(digests) > 1:
            raise RuntimeError(f"{name} has written something else than the case before it")
        return figures

    cases = {name: partial(run, name) for name in CASES}
    title = "Events a second over batches with rows, by where the tasks run"
    bench.compare(title, cases, size.rounds, by="events/s", ratios=RATIOS)


def _run(folder: Path, server_: Server, name: str, pool: Path) -> tuple[Run, tuple[bytes, ...]]:
    """Run a case once; returns its figures and the digest of each batch."""
    folder.mkdir(parents=True)
    (folder / "events").symlink_to(pool)
    files = len(list(pool.glob("*.parquet")))
    with (
        server_.fresh() as dsn,
        _master(folder, name) as (master, parts),
        job(folder, dsn, "bench", options=(*master, "--partitions", "2")) as running,
    ):
        pids = (running.pid, *parts)
        running.job.until(lambda: len(running.with_rows) >= WARM)
        cpu = sum(map(processor_seconds, pids))
        running.job.until(lambda: len(running.with_rows) >= files)
        cpu = sum(map(processor_seconds, pids)) - cpu
        batches = running.with_rows[WARM:]
        with psycopg.connect(dsn) as db:
            query = "SELECT digest FROM holdfast.batch WHERE batch_id < %s ORDER BY batch_id"
            wrote = tuple(bytes(digest) for (digest,) in db.execute(query, [files]))
    rows = sum(batch.rows for batch in batches)
    figures = {
        "events/s": rows / sum(batch.seconds for batch in batches),
        "batch, s": statistics.median(batch.seconds for batch in batches),
        "processor s per M": cpu / rows * 1e6,
    }
    return figures, wrote


@contextmanager
def _master(folder: Path, name: str) -> Iterator[tuple[list[str], list[int]]]:
    """Yield the options with the master of a case, and the processes of its cluster."""
    workers = CASES[name]
    if not workers:
        yield ["--master", name], []
        return
    with standalone(folder / "spark", workers) as cluster:
        parts = [cluster.master, *map(cluster.worker, range(workers))]
        yield options(cluster, JAVA), parts


if __name__ == "__main__":
    parts = {"driver": driver, "throughput": throughput}
    main("cluster", Sizes, parts, about=__doc__ or "")
