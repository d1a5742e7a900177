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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.operator import events
from tests.benchmarks.operator.database import database
from tests.benchmarks.operator.job import Batch, Running, job, kill_in_flight
from tests.benchmarks.operator.tradeoff import written_bytes

WARM = 5
"""Two versions of the state each: after ten RocksDB writes its files, whose size is then exact."""

PARTS = ("python", "session", "query", "load", "batch")


@dataclass(frozen=True, slots=True)
class Fill:
    """Files of equal size that fill one window, and the numbers of files with a measurement."""

    per_file: int
    merchants: int
    files: Sequence[int]
    rounds: int = 3
    small: int = 1_000
    """Events of a batch that is killed, and of WARM ones before it."""

    @property
    def shape(self) -> events.Shape:
        count = max(self.files)
        return events.Shape(count, self.per_file, self.merchants, file_s=800 / count)


@dataclass(frozen=True, slots=True)
class Start:
    """One start after a SIGKILL; seconds, and what the state had to load."""

    python: float
    session: float
    query: float
    load: float
    batch: float
    total: float
    cpu: float
    """Processor seconds of all processes."""
    rows: int
    changelogs: int
    snapshots: int
    loaded_bytes: int


@dataclass
class _Size:
    """A job with so many ids in its state, that is killed and started again."""

    folder: Path
    dsn: str
    spare: Iterator[Path]
    """Small files that are still to appear."""
    found: dict[str, Any] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)

    def job(self) -> AbstractContextManager[Running]:
        return job(self.folder, self.dsn, f"restore-{self.folder.name}")

    def kill_a_batch(self, running: Running) -> None:
        _move(next(self.spare), self.folder / "events")
        kill_in_flight(running)


def measure(folder: Path, fill: Fill) -> list[dict[str, Any]]:
    """Measure each number of ids; the report's `restore`."""
    pool = folder / "pool"
    events.write(pool, fill.shape)
    files = sorted(pool.glob("*.parquet"))
    with database(folder) as dsn:
        sizes = [_filled(folder / f"{count}", dsn, fill, files[:count]) for count in fill.files]
        # In turns, so that a busy minute of the machine affects all.
        for _ in range(fill.rounds):
            for size in sizes:
                _restart(size)
                print(f"  {size.found['open_ids']:>9,} ids: {size.starts[-1]}", flush=True)
    return [{**size.found, **_summary(size.starts)} for size in sizes]


def _filled(folder: Path, dsn: str, fill: Fill, files: Sequence[Path]) -> _Size:
    """Run a job over all files, and kill it in a small batch."""
    checkpoint, into, small = folder / "checkpoint", folder / "events", folder / "small"
    into.mkdir(parents=True)
    count = WARM + 1 + fill.rounds
    # Of other ids, in all parts of the window.
    events.write(small, events.Shape(count, fill.small, 500, file_s=800 / count, seed=2))
    for path in files:
        _move(path, into)
    size = _Size(folder, dsn, iter(sorted(small.glob("*.parquet"))))
    with size.job() as running:
        running.until(lambda: _has_read(running, len(files)))
        running.settle()
        fed = [batch for batch in running.batches if batch.rows]
        cpu = processor_seconds(running.process.pid)
        warm = [_one_batch(running, next(size.spare), into) for _ in range(WARM)]
        cpu = processor_seconds(running.process.pid) - cpu
        size.found = {
            **_distinct(into),
            "state_file_bytes": running.batches[-1].state["rocksdbSstFileSize"],
            "checkpoint_bytes": written_bytes(checkpoint),
            "small_batch_s": statistics.median(batch.seconds for batch in warm),
            "small_batch_cpu_s": cpu / WARM,
            "small_changelog_bytes": _changelog_bytes(checkpoint, warm),
            "fed_batch_events": fill.per_file,
            "fed_batch_s": statistics.median(batch.seconds for batch in fed),
            "fed_changelog_bytes": _changelog_bytes(checkpoint, fed),
        }
        size.kill_a_batch(running)
    return size


def _restart(size: _Size) -> None:
    """Start a job that was killed, note the parts of its start, and kill it in another batch."""
    with size.job() as running:
        running.until(lambda: running.batches)
        size.starts.append(_start(running))
        running.settle()
        size.kill_a_batch(running)


def _distinct(into: Path) -> dict[str, int]:
    """What the state holds: event ids, and merchants with a window."""
    table = pq.read_table(into, columns=["event_id", "merchant_id"])
    return {
        "open_ids": pc.count_distinct(table["event_id"]).as_py(),
        "merchants": pc.count_distinct(table["merchant_id"]).as_py(),
    }


def _summary(starts: list[Start]) -> dict[str, Any]:
    rounds = [asdict(each) for each in starts]
    seconds = (*PARTS, "total", "cpu")
    return {
        "rounds": rounds,
        "seconds": {name: statistics.median(each[name] for each in rounds) for name in seconds},
    }


def _one_batch(running: Running, path: Path, into: Path) -> Batch:
    """Let one file appear in a job that waits; its batch."""
    before = len(running.batches)
    _move(path, into)
    running.until(lambda: any(batch.rows for batch in running.batches[before:]))
    running.settle()
    return next(batch for batch in running.batches[before:] if batch.rows)


def _start(running: Running) -> Start:
    [first, *_] = running.batches
    python, session = running.when("python"), running.when("session")
    load = first.state_s("rocksdbLoadLatencyMs")
    began = first.began - running.began
    return Start(
        python=python,
        session=session - python,
        query=began - session,
        load=load,
        batch=first.seconds - load,
        total=first.ended - running.began,
        cpu=processor_seconds(running.process.pid),
        rows=first.rows,
        changelogs=first.state["rocksdbNumReplayChangelogFiles"],
        snapshots=first.state["rocksdbNumLoadedFromDfs"],
        loaded_bytes=first.state["rocksdbSstFileSize"],
    )


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
