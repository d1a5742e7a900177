"""`make bench-latency`: what a small batch costs, by phase; the time from event to action.

The parts of a trigger do not overlap:

    new files + offset log + plan + batch + commit log + other = trigger
    batch = Spark's jobs + the sink + the rest

Those of the state are inside Spark's jobs, of a mean partition. `period` is from the start of a
batch to that of the next, which begins at once.
"""

import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from holdfast.deploy.local.demo import database, receiver
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.processes import Child, Interrupts, Processes
from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.sink.contract.checkpoint import MANAGER_SETTING
from holdfast.spark_app.operator.groups import STATE_PARTITIONS
from holdfast.spark_app.operator.job import local_manager
from holdfast.spark_app.runtime import session
from tests.benchmarks.common.processes import Peak, memory_of
from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.common.trees import HERE, percentiles
from tests.benchmarks.operator.cases import Input, aggregate, plain_session
from tests.benchmarks.operator.events import Shape, write
from tests.benchmarks.operator.job import job
from tests.benchmarks.operator.ours import SETTINGS

POLICY = """
version = "bench"
[[default]]
limit_minor = 50_000
release_level_minor = 50_000
"""
FILE_S = 0.05
"""A writer closes a file so often, if it has an event."""

WINDOW = timedelta(minutes=15)
BEGIN = datetime(2024, 11, 4, 12, tzinfo=UTC)
REVISABLE = BEGIN + WINDOW + timedelta(seconds=90)
"""An event of this time publishes the first window, and lets no time pass in which it expires."""

DELAY = timedelta(seconds=SETTINGS.watermark_delay_us / 1e6 + 1)
"""An event so far behind the end of a window closes it."""

AMOUNT = 60_000
"""More than the limit."""

PATIENCE_S = 300.0
APPLIED = """
SELECT merchant_id, sequence, extract(epoch FROM applied_at)::float8
FROM payouts.hold_history WHERE merchant_id = ANY (%s)
"""

Event = tuple[str, int, datetime]
"""Merchant, amount in minor units, and time."""


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents: a quarter of an hour."""

    rounds: int = 3
    warm: int = 60
    """Batches before the measured ones: the JVM compiles what it runs often."""
    batches: int = 60
    """Measured batches with rows, and as many without."""
    rows: int = 200
    """Of each batch that has any, each of another merchant."""
    rates: tuple[int, ...] = (1, 100, 1_000)
    """Corrections a second."""
    seconds: float = 60.0
    """At each rate."""
    warm_s: float = 90.0
    """At each rate before those that count: a JVM compiles for so long."""
    merchants: int = 10_000
    """Who take turns at the events, so that two of one merchant are never in one batch."""
    closings: int = 40
    """Windows that close one after the other, each with a decision."""
    job: str = ""
    """Options of `job run`, as "--trigger-interval 200ms --key-groups 8"."""
    quick: ClassVar = {
        "rounds": 1,
        "warm": 5,
        "batches": 10,
        "rates": (2, 50),
        "seconds": 5.0,
        "warm_s": 2.0,
    } | {"merchants": 500, "closings": 4}


def fixed(bench: Bench[Sizes]) -> None:
    """The real job, and Spark's own operators over the same files into the sink `noop`."""
    size, numbers, phases = bench.size, itertools.count(), {}

    def run(name: str, of: Callable[[Path], tuple[list[Any], dict[int, Any] | None]]) -> Run:
        folder = bench.folder / f"{name}-{next(numbers)}"
        write_files(folder / "events", size)
        reports, sunk = of(folder)
        filled, periods = size.warm + size.batches, {}
        for kind, part in (("rows", reports[size.warm : filled]), ("empty", reports[filled:])):
            row = summary(part[: size.batches], sunk)
            periods[f"ms, {kind}"] = row["period"]["p50"]
            phases.setdefault(kind, {}).setdefault(name, []).append(row)
        return periods

    def the_job(folder: Path) -> tuple[list[Any], dict[int, Any] | None]:
        with (
            bench.server.fresh() as dsn,
            job(folder, dsn, "bench", options=size.job.split()) as running,
        ):
            count = size.warm + 2 * size.batches
            running.job.until(lambda: len(running.noted("batch")) >= count)
            sunk = {each["batch"]: each for each in running.noted("sunk")}
            return [each["progress"] for each in running.noted("batch")], sunk

    def spark(settings: str, folder: Path) -> tuple[list[Any], dict[int, Any] | None]:
        return HERE.call("tests.benchmarks.latency:floor", settings, str(folder)), None

    ways = {"job": the_job, "floor": partial(spark, "job"), "spark_defaults": partial(spark, "")}
    cases = {name: partial(run, name, of) for name, of in ways.items()}
    runs = bench.compare(
        "A small batch, from its start to that of the next", cases, size.rounds, by="ms, rows"
    )
    for kind, by_case in phases.items():
        for other in ("floor", "spark_defaults"):
            bench.ratios(runs, f"ms, {kind}", {f"vs_{other}_{kind}": ("job", other)})
        # Of the round with the middle time: its phases add up.
        middle = {
            name: sorted(each, key=lambda one: one["period"]["p50"])[len(each) // 2]
            for name, each in by_case.items()
        }
        names = dict.fromkeys(phase for each in middle.values() for phase in each)
        rows: list[dict[str, Any]] = []
        for phase in names:
            columns = {
                f"{case} {key}": each.get(phase, {}).get(key)
                for case, each in middle.items()
                for key in ("p50", "p95")
            }
            rows.append({"phase": phase, **columns})
        bench.table(f"Phases of a batch, ms, {STATE_PARTITIONS} partitions: {kind}", rows)


def write_files(folder: Path, size: Sizes) -> None:
    """Write small batches, a file each: warm ones, measured ones, and as many without rows."""
    filled = size.warm + size.batches
    # Five seconds of event time each: a window closes now and then, as in a job that runs.
    write(folder, Shape(filled, size.rows, size.rows, file_s=5))
    empty = pq.read_table(folder / "0000.parquet").slice(0, 0)
    for number in range(filled, filled + size.batches):
        part = folder / f".{number:04}.parquet"
        pq.write_table(empty, part)
        # Spark takes the oldest file first.
        os.utime(part, (1_700_000_000 + number,) * 2)
        part.rename(folder / f"{number:04}.parquet")


def floor(settings: str, folder: str) -> list[Any]:
    """Return Spark's report of each batch of its own operators, nothing written.

    `settings` is `job`, the session of the product with its file manager, or empty: Spark's
    defaults with as many partitions.
    """
    os.environ.update(spark_environment())
    spark = session.create("holdfast bench") if settings else plain_session()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    if settings:
        spark.conf.set("spark.sql.shuffle.partitions", str(STATE_PARTITIONS))
        spark.conf.set(MANAGER_SETTING, local_manager(spark))
        # Spark's aggregation knows no other encoding.
        spark.conf.set("spark.sql.streaming.stateStore.encodingFormat", "unsaferow")

    def nothing(df: DataFrame, batch_id: int) -> None:  # noqa: ARG001 - Spark's call
        df.write.format("noop").mode("append").save()

    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        query = aggregate(spark, Input(f"{folder}/events"), checkpoint, nothing)
        query.awaitTermination()
        reports = [json.loads(progress.json) for progress in query.recentProgress]
        spark.stop()
    return reports


def summary(reports: Sequence[Any], sunk: dict[int, Any] | None) -> dict[str, dict[str, float]]:
    """Return median and 95th percentile of each phase of consecutive batches, in milliseconds."""
    each = [phases_of(report, sunk) for report in reports]
    columns = {name: [one[name] for one in each] for name in each[0]}
    began = [datetime.fromisoformat(report["timestamp"]).timestamp() * 1000 for report in reports]
    columns["period"] = [after - before for before, after in pairwise(began)]
    return {
        name: {
            "p50": statistics.median(values),
            "p95": statistics.quantiles(values, n=20, method="inclusive")[18],
        }
        for name, values in columns.items()
    }


def phases_of(report: Any, sunk: dict[int, Any] | None) -> dict[str, float]:
    """Return the milliseconds of each phase of a batch; `sunk` is None where nothing is written."""
    spark: dict[str, float] = report["durationMs"]
    phases = {
        "new files": spark.get("latestOffset", 0) + spark.get("getBatch", 0),
        "offset log": spark.get("walCommit", 0),
        "plan": spark.get("queryPlanning", 0),
        "batch": spark["addBatch"],
        "commit log": spark.get("commitOffsets", 0) + spark.get("commitBatch", 0),
    }
    phases["other"] = spark["triggerExecution"] - sum(phases.values())
    if sunk is not None:
        took = sunk.get(report["batchId"], {"call": 0.0, "write": 0.0})
        phases |= {
            "of it Spark's jobs": took["call"] - took["write"],
            "of it the sink": took["write"],
            "of it the rest": spark["addBatch"] - took["call"],
        }
    for operator in report["stateOperators"]:
        count, details = max(operator["numShufflePartitions"], 1), operator["customMetrics"]
        for name, ms in (
            ("load", details.get("rocksdbLoadLatencyMs", 0)),
            ("commit", operator["commitTimeMs"]),
            ("update", operator["allUpdatesTimeMs"]),
        ):
            phases[f"state: {name}"] = phases.get(f"state: {name}", 0.0) + ms / count
    return {**phases, "trigger": spark["triggerExecution"]}


@dataclass
class Load:
    """Writes event files, and keeps when each event of a merchant was written."""

    folder: Path
    times: dict[str, list[float]] = field(default_factory=dict)
    _serial: Iterator[int] = field(default_factory=itertools.count)
    _files: Iterator[int] = field(default_factory=itertools.count)

    def write(self, events: Sequence[Event]) -> None:
        """Write a file of events."""
        lines = [
            f'{{"event_id":"e{number}","merchant_id":"{merchant}","type":"payout_submitted",'
            f'"amount_minor":{amount},"currency":"USD","occurred_at":"{at:%Y-%m-%dT%H:%M:%SZ}"}}\n'
            for number, (merchant, amount, at) in zip(self._serial, events, strict=False)
        ]
        part = self.folder / f".{next(self._files):08}"
        part.write_text("".join(lines))
        part.rename(part.with_name(f"{part.name[1:]}.json"))
        now = time.time()
        for merchant, _amount, _at in events:
            self.times.setdefault(merchant, []).append(now)


@dataclass(frozen=True)
class Parts:
    """The running parts, with what the payouts service applied."""

    load: Load
    payouts: psycopg.Connection[Any]
    processes: tuple[Child, ...]
    peaks: tuple[Peak, ...]

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; raises when a part ends, or time is up first."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            for each in self.processes:
                each.must_run()
            if time.monotonic() > deadline:
                raise self.processes[0].failure(f"did not come on within {PATIENCE_S:.0f} s")
            time.sleep(0.05)

    def applied(self) -> int:
        """Return how many actions were applied so far."""
        [(count,)] = self.payouts.execute("SELECT count(*) FROM payouts.hold_history").fetchall()
        return int(count)

    def latencies(self, since: float) -> dict[str, float]:
        """Return percentiles of the seconds from events written since a moment to their actions.

        The second event of a merchant has the first action of its sequence.
        """
        times = self.load.times
        rows = self.payouts.execute(APPLIED, (list(times),)).fetchall()
        pairs = [(times[merchant][window], at) for merchant, window, at in rows]
        return percentiles([at - written for written, at in pairs if written >= since], 50, 95, 99)


@contextmanager
def running(folder: Path, options: str) -> Iterator[Parts]:
    """Start every part, with default settings; none is left at the end."""
    layout = Layout(folder / "parts")
    layout.claim()
    layout.clear()
    layout.make_secret()
    layout.policy.write_text(POLICY)
    layout.events.mkdir()
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres", keep=False))
        holdfast_dsn, payouts_dsn = database.prepare(postgres.dsn)
        environment = {
            **spark_environment(),
            "HOLDFAST_DSN": holdfast_dsn,
            "HOLDFAST_ALLOW_SECRET_DIR": str(layout.secrets),
        }
        processes = stack.enter_context(Processes(layout.logs, environment))
        service, _url = receiver.start(processes, layout, payouts_dsn, interrupts)
        dispatcher = processes.start("dispatcher", ["dispatch"])
        words = [
            *("job", "run", "--path", str(layout.events), "--policy", str(layout.policy)),
            *("--checkpoint", str(layout.checkpoint), "--stream", "exposure"),
            *options.split(),
        ]
        parts = (processes.start("job", words), dispatcher, service)
        payouts = stack.enter_context(psycopg.connect(payouts_dsn, autocommit=True))
        looks = (memory_of(p.process.pid, shared_once=True, name=f"{p.name} MB") for p in parts)
        # Two seconds between two looks: one walks all pages of the JVM.
        peaks = tuple(stack.enter_context(Peak(look, 2.0)) for look in looks)
        yield Parts(Load(layout.events), payouts, parts, peaks)


def corrections(bench: Bench[Sizes]) -> None:
    """Events at random moments, each of which changes a published window and so has an action.

    The action comes with the event's own batch. The merchants take turns, and each event takes one
    above its limit or back below. An event is timed when its file gets its name, its action when
    the payouts service begins the transaction that applies it.
    """
    size, rows = bench.size, []
    merchants = [f"m_{number}" for number in range(size.merchants)]
    for rate in size.rates:
        with running(bench.folder / str(rate), size.job) as parts:
            parts.load.write([(name, 1, BEGIN) for name in merchants])
            parts.load.write([("m_clock", 100_000, BEGIN), ("m_clock", 0, REVISABLE)])
            # Its action says that the window is published.
            parts.until(lambda: parts.applied() == 1)
            turns = itertools.chain.from_iterable(
                ((name, amount, BEGIN) for name in merchants)
                for amount in itertools.cycle((AMOUNT, -AMOUNT))
            )
            for seconds in (size.warm_s, size.seconds):
                since, before = time.time(), parts.applied()
                written = _steadily(rate, seconds, parts.load, turns)
                parts.until(lambda b=before, w=written: parts.applied() >= b + w)
            memory = {n: v / 1e6 for peak in parts.peaks for n, v in peak.most.items()}
            row = {"actions": written, **parts.latencies(since), **memory}
        rows.append({"corrections/s": rate, **row})
        bench.say(rows[-1])
    bench.table("Seconds from the event's file to the applied action", rows)


def _steadily(rate: int, seconds: float, load: Load, turns: Iterator[Event]) -> int:
    """Write events at random moments, so many a second on average; returns how many."""
    draw = random.Random(rate)  # noqa: S311 - moments, not a secret
    began, written = time.monotonic(), 0
    due = draw.expovariate(rate)
    while (passed := time.monotonic() - began) < seconds:
        events = []
        while due <= passed:
            events.append(next(turns))
            due += draw.expovariate(rate)
        if events:
            load.write(events)
            written += len(events)
        time.sleep(FILE_S)
    return written


def closings(bench: Bench[Sizes]) -> None:
    """Events that close the window before theirs, whose decision is the action.

    The watermark that such an event moves holds from the next batch on, which publishes the window.
    """
    draw = random.Random(0)  # noqa: S311 - moments, not a secret
    with running(bench.folder / "closings", bench.size.job) as parts:
        # The first event closes nothing.
        for number in range(bench.size.closings + 1):
            behind = BEGIN + number * WINDOW + DELAY
            parts.load.write([("m_482", (2 * AMOUNT, 1)[number % 2], behind)])
            parts.until(lambda n=number: parts.applied() == n)
            time.sleep(draw.uniform(0.5, 1.5))
        row = {"closings": bench.size.closings, **parts.latencies(0)}
    bench.table("Seconds from the event that closes a window to the applied action", [row])


PARTS = {"fixed": fixed, "corrections": corrections, "closings": closings}

if __name__ == "__main__":
    main("latency", Sizes, PARTS, about=__doc__ or "")
