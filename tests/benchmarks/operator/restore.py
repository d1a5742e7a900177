"""The time from a start after SIGKILL to the next commit, by the number of event ids in the state.

A job for each number of ids fills its state: all its events lie in one window, so no id is
forgotten. Then a small batch is killed in flight, and the job is started again. The parts:

    python   until the job's modules are imported
    session  the JVM and the Spark session
    query    the checks of checkpoint and ledger, and the query's own start
    load     RocksDB's files and changelogs into the state stores, of a mean partition
    batch    the rest of the batch that was in flight: Spark's plan, its Python workers, its rows

The machine's page cache is warm, and the checkpoint is on a local file system.
"""

import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.runner import Bench, Run
from tests.benchmarks.operator import events
from tests.benchmarks.operator.job import Batch, Running, job
from tests.benchmarks.operator.sweep import written_bytes

WARM = 5
"""Two versions of the state each: after ten RocksDB writes its files, whose size is then exact."""

SMALL = 1_000
"""Events of a batch that is killed, and of WARM ones before it."""

PARTS = ("python", "session", "query", "load", "batch")


@dataclass
class Restarted:
    """A job with so many ids in its state, that is killed and started again."""

    folder: Path
    dsn: str
    spare: Iterator[Path]
    """Small files that are still to appear."""
    found: dict[str, Any] = field(default_factory=dict)

    def job(self) -> AbstractContextManager[Running]:
        return job(self.folder, self.dsn, f"restore-{self.folder.name}")

    def kill_a_batch(self, running: Running) -> None:
        _move(next(self.spare), self.folder / "events")
        running.kill_in_flight()

    def restart(self) -> Run:
        """Start the job that was killed, note the parts of its start, kill it in another batch."""
        with self.job() as running:
            running.job.until(lambda: running.batches)
            start = _start(running)
            running.settle()
            self.kill_a_batch(running)
        return start


def measure(bench: Bench[Any]) -> None:
    """Measure each number of ids in turns; the report's `restore`."""
    size, pool = bench.size, bench.folder / "pool"
    count = max(size.restore_files)
    shape = events.Shape(count, size.restore_per_file, size.restore_merchants, file_s=800 / count)
    events.write(pool, shape)
    files = sorted(pool.glob("*.parquet"))
    with bench.server.fresh() as dsn:
        sizes = [
            _filled(bench.folder / f"{n}", dsn, bench.size, files[:n]) for n in size.restore_files
        ]
        cases = {f"{each.found['open_ids']:,} ids": each.restart for each in sizes}
        runs = bench.compare(
            "Seconds from a start after SIGKILL to the next commit", cases, size.rounds, by="total"
        )
    bench.found["restore"] = [
        {
            **each.found,
            "rounds": list(rounds),
            "seconds": {
                n: statistics.median(r[n] for r in rounds) for n in (*PARTS, "total", "cpu")
            },
        }
        for each, rounds in zip(sizes, runs.values(), strict=True)
    ]


def _filled(folder: Path, dsn: str, of_run: Any, files: Sequence[Path]) -> Restarted:
    """Run a job over all files, and kill it in a small batch."""
    checkpoint, into, small = folder / "checkpoint", folder / "events", folder / "small"
    into.mkdir(parents=True)
    count = WARM + 1 + of_run.rounds
    # Of other ids, in all parts of the window.
    events.write(small, events.Shape(count, SMALL, 500, file_s=800 / count, seed=2))
    for path in files:
        _move(path, into)
    size = Restarted(folder, dsn, iter(sorted(small.glob("*.parquet"))))
    with size.job() as running:
        running.job.until(lambda: _has_read(running, len(files)))
        running.settle()
        fed = running.with_rows
        cpu = processor_seconds(running.pid)
        warm = [_one_batch(running, next(size.spare), into) for _ in range(WARM)]
        cpu = processor_seconds(running.pid) - cpu
        size.found = {
            **_distinct(into),
            "state_file_bytes": running.batches[-1].state["rocksdbSstFileSize"],
            "checkpoint_bytes": written_bytes(checkpoint),
            "small_batch_s": statistics.median(batch.seconds for batch in warm),
            "small_batch_cpu_s": cpu / WARM,
            "small_changelog_bytes": _changelog_bytes(checkpoint, warm),
            "fed_batch_events": of_run.restore_per_file,
            "fed_batch_s": statistics.median(batch.seconds for batch in fed),
            "fed_changelog_bytes": _changelog_bytes(checkpoint, fed),
        }
        size.kill_a_batch(running)
    return size


def _distinct(into: Path) -> dict[str, int]:
    """What the state holds: event ids, and merchants with a window."""
    table = pq.read_table(into, columns=["event_id", "merchant_id"])
    return {
        "open_ids": pc.count_distinct(table["event_id"]).as_py(),
        "merchants": pc.count_distinct(table["merchant_id"]).as_py(),
    }


def _one_batch(running: Running, path: Path, into: Path) -> Batch:
    """Let one file appear in a job that waits; its batch."""
    before = len(running.with_rows)
    _move(path, into)
    running.job.until(lambda: running.with_rows[before:])
    running.settle()
    return running.with_rows[before]


def _start(running: Running) -> dict[str, float]:
    """Seconds of a start after a SIGKILL, and what the state had to load."""
    [first, *_] = running.batches
    python, session = running.when("python"), running.when("session")
    load = first.state_s("rocksdbLoadLatencyMs")
    return {
        "python": python,
        "session": session - python,
        "query": first.began - running.began - session,
        "load": load,
        "batch": first.seconds - load,
        "total": first.ended - running.began,
        "cpu": processor_seconds(running.pid),
        "rows": first.rows,
        "changelogs": first.state["rocksdbNumReplayChangelogFiles"],
        "snapshots": first.state["rocksdbNumLoadedFromDfs"],
        "loaded_bytes": first.state["rocksdbSstFileSize"],
    }


def _has_read(running: Running, files: int) -> bool:
    """Whether the job has a batch of this run, and every full file in its source's log."""
    log = running.folder / "checkpoint" / "sources" / "0"
    read = {
        line
        for path in (log.glob("[0-9]*") if log.is_dir() else ())
        for line in path.read_text().splitlines()
        if "/pool-" in line
    }
    return bool(running.batches) and len(read) >= files


def _move(path: Path, into: Path) -> None:
    # The copy appears whole, under a name of its own.
    part = into / f".{path.parent.name}"
    shutil.copy(path, part)
    part.rename(into / f"{path.parent.name}-{path.name}")


def _changelog_bytes(checkpoint: Path, batches: list[Batch]) -> float:
    """Bytes of the changelogs of a median batch, all partitions together."""
    state = checkpoint / "state" / "0"
    return statistics.median(
        sum(path.stat().st_size for path in state.glob(f"*/{batch.number + 1}_*.changelog"))
        for batch in batches
    )
