"""Memory and time of the driver by the decisions of one batch, which all come to it.

Every merchant is over its limit in one window, and a later event closes it: the batch without rows
that follows has as many decisions, each with its window, as there are merchants.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.common.database import fresh
from tests.benchmarks.operator.events import SECOND_US, START_US
from tests.benchmarks.operator.job import Batch, Running, job
from tests.support.processes import java_below

OVER_THE_LIMIT = 30_000_000
LATER_US = 1_200 * SECOND_US


def measure(folder: Path, server: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Measure each number of decisions; the report's `driver`.

    Raises RuntimeError when other decisions were written.
    """
    points = []
    for decisions in sizes:
        point = _run(folder / str(decisions), server, decisions)
        points.append(point)
        print(
            f"  {decisions:,} decisions: {point['batch_s']:.1f} s,"
            f" {point['python_bytes'] / 1e6:,.0f} MB more in Python,"
            f" {point['java_bytes'] / 1e6:,.0f} MB in the JVM",
            flush=True,
        )
    return points


def _run(folder: Path, server: str, decisions: int) -> dict[str, Any]:
    (folder / "events").mkdir(parents=True)
    _write(folder / "events" / "0.parquet", decisions, START_US)
    options = ("--master", "local[2]", "--partitions", "2")
    with (
        fresh(server) as dsn,
        psycopg.connect(dsn, autocommit=True) as db,
        job(folder, dsn, "bench", options=options) as running,
    ):
        running.until(lambda: running.batches)
        running.settle()
        before = peak = _memory(running)
        _write(folder / "events" / "1.parquet", 1, START_US + LATER_US)

        def closing() -> Batch | None:
            nonlocal peak
            peak = tuple(map(max, peak, _memory(running)))
            wrote = db.execute("SELECT max(batch_id) FROM holdfast.batch WHERE entry_count > 0")
            (number,) = wrote.fetchone() or (None,)
            return next((each for each in running.batches if each.number == number), None)

        running.until(closing)
        batch = closing()
        counted = db.execute("SELECT count(*) FROM holdfast.entry").fetchone()
    if batch is None or counted != (decisions,):
        raise RuntimeError(f"{counted} decisions were written")
    python, java = (after - was for after, was in zip(peak, before, strict=True))
    return {
        "decisions": decisions,
        "batch_s": batch.seconds,
        "python_bytes": python,
        "java_bytes": java,
    }


def _memory(running: Running) -> tuple[int, ...]:
    """Resident bytes of the driver's Python process and of its JVM."""
    driver = psutil.Process(running.process.pid)
    java = sum(each.memory_info().rss for each in java_below(driver.pid))
    return driver.memory_info().rss, java


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
