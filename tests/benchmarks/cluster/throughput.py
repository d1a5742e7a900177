"""Events a second and processor time of the job by where its tasks run.

The real job, with its sink, on a real Postgres, over the same files. A case that is not local has
a master and workers of its own, each with one executor of one core. Master, workers and executors
count towards the processor time.
"""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.runs import ratios, spread
from tests.benchmarks.operator import events
from tests.benchmarks.operator.job import Running, job
from tests.support.cluster.standalone import options, standalone

WARM = 2
CASES = {"local[1]": 0, "one executor": 1, "local[2]": 0, "two executors": 2}
"""Workers of each case; a name without any is the master."""

RATIOS = {
    "two_executors_vs_local_2": ("two executors", "local[2]"),
    "one_executor_vs_local_1": ("one executor", "local[1]"),
    "two_executors_vs_one": ("two executors", "one executor"),
    "local_2_vs_local_1": ("local[2]", "local[1]"),
}

# As the driver's JVM, which here does not compile well later.
_JAVA = "spark.executor.extraJavaOptions=-Xss4m"


@dataclass(frozen=True, slots=True)
class Load:
    """What a run reads: WARM files and so many more, one a batch."""

    counted: int = 5
    per_file: int = 200_000
    merchants: int = 50_000
    rounds: int = 3

    @property
    def shape(self) -> events.Shape:
        return events.Shape(WARM + self.counted, self.per_file, self.merchants)


def measure(folder: Path, server: str, load: Load) -> dict[str, Any]:
    """Measure all cases in turns; the report's `throughput`.

    Raises RuntimeError when a case has written something else than the others.
    """
    pool = folder / "pool"
    events.write(pool, load.shape)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    digests: list[bytes] = []
    for number in range(load.rounds):
        for place, name in enumerate(CASES):
            found, wrote = _run(folder / f"{number}-{place}", server, name, pool)
            digests = digests or wrote
            if wrote != digests:
                raise RuntimeError(f"{name} has written something else than the case before it")
            runs[name].append(found)
            print(
                f"  round {number + 1}  {name:<14}{found['rate']:>10,.0f} events/s"
                f"{found['cpu_s_per_million']:>8.1f} s of processor per M",
                flush=True,
            )
    cases = {name: _figures(each) for name, each in runs.items()}
    return {"cases": cases, "ratios": ratios(cases, RATIOS)}


def _run(folder: Path, server: str, name: str, pool: Path) -> tuple[dict[str, Any], list[bytes]]:
    """Run a case once; returns its figures and the digest of each batch."""
    folder.mkdir(parents=True)
    (folder / "events").symlink_to(pool)
    files = len(list(pool.glob("*.parquet")))
    with (
        fresh(server) as dsn,
        _master(folder, name) as (master, parts),
        job(folder, dsn, "bench", options=(*master, "--partitions", "2")) as running,
    ):
        pids = (running.process.pid, *parts)
        running.until(lambda: _done(running) >= WARM)
        cpu = sum(map(processor_seconds, pids))
        running.until(lambda: _done(running) >= files)
        cpu = sum(map(processor_seconds, pids)) - cpu
        batches = [batch for batch in running.batches if batch.rows][WARM:]
        with psycopg.connect(dsn) as db:
            wrote = db.execute(
                "SELECT digest FROM holdfast.batch WHERE batch_id < %s ORDER BY batch_id", [files]
            ).fetchall()
    rows = sum(batch.rows for batch in batches)
    figures = {
        "rate": rows / sum(batch.seconds for batch in batches),
        "batch_s": statistics.median(batch.seconds for batch in batches),
        "cpu_s_per_million": cpu / rows * 1e6,
    }
    return figures, [digest for (digest,) in wrote]


@contextmanager
def _master(folder: Path, name: str) -> Iterator[tuple[list[str], list[int]]]:
    """Yield the options with the master of a case, and the processes of its cluster."""
    workers = CASES[name]
    if not workers:
        yield ["--master", name], []
        return
    with standalone(folder / "spark", workers) as cluster:
        parts = [cluster.master, *map(cluster.worker, range(workers))]
        yield options(cluster, _JAVA), parts


def _done(running: Running) -> int:
    return sum(1 for batch in running.batches if batch.rows)


def _figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **spread([run["rate"] for run in runs]),
        "batch_s": spread([run["batch_s"] for run in runs]),
        "cpu_s_per_million": spread([run["cpu_s_per_million"] for run in runs]),
    }
