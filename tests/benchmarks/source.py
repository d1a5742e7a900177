"""`make bench-source`: a topic as the job's source: rate beside files and Spark's own, and lag.

Lag is how long a record waits until its batch is recorded, at a steady rate and after an outage.
Each event is written with the time at which that happens. A batch is recorded after its decisions
are in the outbox, so the lag of a record is the time of that commit less its own.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker
from holdfast.deploy.local.kafka.jars import staged
from holdfast.deploy.local.kafka.topics import Writer
from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.input import connector
from tests.benchmarks.common.runner import Bench, main
from tests.benchmarks.common.trees import HERE, Tree
from tests.benchmarks.operator.cases import Input, disagreements
from tests.benchmarks.operator.events import Shape
from tests.benchmarks.operator.events import write as write_parquet
from tests.benchmarks.operator.ours import POLICY_TEXT
from tests.support.job.job_process import JobProcess, running
from tests.support.job.jobs import ends, newest, numbers

INTERVAL = "500ms"
BASE = datetime(2024, 11, 4, 12, tzinfo=UTC)
MERCHANTS = 5_000
PER_BATCH = 100_000
"""Records of a batch of the job that catches up."""
WARM_BATCHES = 4
CAUGHT_UP_S = 3.0
"""The job has caught up when it is behind by no more than so many seconds of traffic."""
EVENT_SECONDS = 3_600
"""Of event time that wait when it begins."""
FLUSH_S = 300.0
RATIOS = {f"vs_{other}": ("topic", other) for other in ("files", "spark_aggregate", "spark_noop")}

Ends = dict[int, int]


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents: a quarter of an hour."""

    rounds: int = 3
    partitions: int = 4
    per_batch: int = 100_000
    """Of ten: a file, or as many records of the topic, is a batch."""
    merchants: int = 50_000
    rates: tuple[int, ...] = (1_000, 5_000, 20_000)
    """Events a second at which a producer writes."""
    seconds: float = 30.0
    """At each."""
    traffic: int = 2_000
    """Events a second of the backlog, and meanwhile."""
    speed: int = 10
    """How much faster than ours the clock of the backlog's events is."""
    quick: ClassVar = {
        "rounds": 1,
        "partitions": 3,
        "per_batch": 2_000,
        "merchants": 500,
        "rates": (200,),
    } | {"seconds": 4.0, "traffic": 200, "speed": 360}


@cache
def broker(bench: Bench[Sizes]) -> Broker:
    """Return the broker of this run, which is started for the first part."""
    try:
        staged("connector")
        jars = staged("broker")
    except CommandError as error:
        sys.exit(str(error))
    started: Broker = bench.enter(Broker(bench.folder / "broker", jars))
    return started


def throughput(bench: Bench[Sizes]) -> None:
    """The job over files and over a topic with the same lines, and Spark's own over the topic."""
    size, at, inputs = bench.size, broker(bench), {}
    for name, shape in {
        "warm": Shape(3, size.per_batch // 5, size.merchants // 10, file_s=600, seed=1),
        "events": Shape(10, size.per_batch, size.merchants),
    }.items():
        topics.make(at.admin(), name, size.partitions)
        write_both(bench.folder / name, at.bootstrap_servers, size.partitions, shape)
        inputs[name] = Input(str(bench.folder / name), at.bootstrap_servers, name, shape.per_file)

    def run(query: str, tree: Tree, **changes: str) -> Any:
        variants = [{**asdict(each), **changes} for each in inputs.values()]
        return tree.call("tests.benchmarks.operator.cases:run", query, *variants)

    runs = bench.compare(
        "Events a second, from the start of the query to its end",
        {
            **bench.with_base(
                {"topic": partial(run, "job"), "files": partial(run, "job", topic="")}
            ),
            "spark_aggregate": partial(run, "aggregate", HERE),
            "spark_noop": partial(run, "noop", HERE),
        },
        size.rounds,
        by="events/s",
        ratios=RATIOS,
    )
    bench.found["missing"] |= disagreements(runs)


def steady(bench: Bench[Sizes]) -> None:
    """The lag of one job at each rate, one after the other."""
    size, at, rows = bench.size, broker(bench), []
    topics.make(at.admin(), "steady", size.partitions)
    load = Load(at.bootstrap_servers, "steady", size.partitions)
    with _reading(bench, at, "steady") as (job, _dsn):
        for _ in range(WARM_BATCHES):
            load.steadily(size.rates[0], _now, lambda passed: passed < 1)
            job.until_read(load.ends)
        for rate in size.rates:
            begin, seen = load.ends, len(job.commits())
            load.steadily(rate, _now, lambda passed: passed < size.seconds)
            job.until_read(load.ends)
            lag = latencies(load, job.commits(seen - 1), begin)
            middle, p99, most = (float(each) for each in np.percentile(lag, [50, 99, 100]))
            row = {"median, s": middle, "p99, s": p99, "most, s": most}
            batches = len(job.commits()) - seen
            rows.append({"events/s": rate, "events": len(lag), "batches": batches, **row})
            bench.say(rows[-1])
    bench.table(f"Lag of a record with a batch every {INTERVAL}", rows)


def catch_up(bench: Bench[Sizes]) -> None:
    """A job that begins an hour of event time behind, while the traffic continues."""
    size, at = bench.size, broker(bench)
    topics.make(at.admin(), "backlog", size.partitions)
    load = Load(at.bootstrap_servers, "backlog", size.partitions)
    waiting, clock = size.traffic * EVENT_SECONDS // size.speed, event_clock(BASE, size.speed)
    step = size.traffic // 20
    for number, written in enumerate(range(0, waiting, step)):
        load.write(min(step, waiting - written), clock(written / size.traffic))
        if number % 100 == 0:
            load.flush()
    load.flush()
    began = time.time()
    options = ("--max-offsets-per-trigger", str(PER_BATCH), "--idle-timeout", "0")
    with _reading(bench, at, "backlog", *options) as (job, dsn):

        def is_behind(_passed: float) -> bool:
            ended = job.process.process.poll()
            if ended is not None:
                raise RuntimeError(f"the job ended with {ended}: {job.process.said[-2000:]}")
            unread = sum(load.ends.values()) - sum(job.newest().values())
            return unread > size.traffic * CAUGHT_UP_S

        end = clock(EVENT_SECONDS / size.speed)
        load.steadily(size.traffic, event_clock(end, size.speed), is_behind)
        caught_up, commits = time.time(), job.commits()
        with psycopg.connect(dsn) as connection:
            query = "SELECT count(*) FROM holdfast.late_event WHERE reason = 'late'"
            [(late,)] = connection.execute(query).fetchall()
    read, first = sum(commits[-1].ends.values()) - sum(commits[0].ends.values()), commits[0].at
    row = {"backlog": waiting, "traffic/s": size.traffic, "first commit, s": first - began}
    row |= {"caught up, s": caught_up - began, "late events": late}
    rate = read / (commits[-1].at - first) if len(commits) > 1 else None
    bench.table("Catch-up from an hour of event time behind", [{**row, "events/s": rate}])


@contextmanager
def _reading(
    bench: Bench[Sizes], at: Broker, name: str, *options: str
) -> Iterator[tuple["Reading", str]]:
    """Start `holdfast job run` on a topic and a real Postgres; whatever is left of it is killed."""
    folder = bench.folder / name
    folder.mkdir()
    (folder / "policy.toml").write_text(POLICY_TEXT)
    words = HERE.command(
        *("job", "run", "--bootstrap-servers", at.bootstrap_servers, "--topic", name),
        *("--checkpoint", str(folder / "checkpoint"), "--stream", name),
        *("--policy", str(folder / "policy.toml")),
        *("--trigger-interval", INTERVAL, "--keep-batches", "100000", *options),
    )
    jars = {connector.ENVIRONMENT: str(Path(connector.STAGED).absolute())}
    with bench.server.fresh() as dsn, running(folder, dsn, words, jars) as job:
        yield Reading(job, folder / "checkpoint", name), dsn


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch that Spark has recorded: when, and where it ends in each partition."""

    at: float
    ends: Ends


@dataclass(frozen=True)
class Reading:
    """A running job and its checkpoint."""

    process: JobProcess
    checkpoint: Path
    topic: str

    def commits(self, after: int = -1) -> list[Commit]:
        """Return the recorded batches behind a number, in their order."""
        folder = self.checkpoint / "commits"
        return [
            Commit(
                (folder / str(number)).stat().st_mtime, ends(self.checkpoint, self.topic, number)
            )
            for number in numbers(self.checkpoint)
            if number > after
        ]

    def newest(self) -> Ends:
        """Return where the newest recorded batch ends; empty before the first."""
        return ends(self.checkpoint, self.topic, newest(self.checkpoint))

    def until_read(self, upto: Ends) -> None:
        """Wait until the job has recorded everything up to these offsets."""
        self.process.until(
            lambda: all(self.newest().get(number, 0) >= end for number, end in upto.items())
        )


class Load:
    """Writes events into a topic and keeps when each was written, by partition."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._writer = Writer(servers)
        self._topic = topic
        self._serial = itertools.count()
        self.times: list[list[float]] = [[] for _ in range(partitions)]

    @property
    def ends(self) -> Ends:
        """Where each partition ends once all is acknowledged."""
        return {number: len(times) for number, times in enumerate(self.times)}

    def write(self, count: int, occurred_at: datetime) -> None:
        """Write events of one moment, each merchant into one partition."""
        moment, now = occurred_at.isoformat().replace("+00:00", "Z"), time.time()
        for number in itertools.islice(self._serial, count):
            merchant = number * 7919 % MERCHANTS
            into = merchant % len(self.times)
            line = (
                f'{{"event_id":"e{number}","merchant_id":"m_{merchant}","type":"payout_submitted",'
                f'"amount_minor":{1000 + number % 9000},"currency":"USD","occurred_at":"{moment}"}}'
            )
            self._writer.write(self._topic, line, partition=into)
            self.times[into].append(now)

    def flush(self) -> None:
        """Wait until all is acknowledged."""
        self._writer.flush(FLUSH_S)

    def steadily(
        self, rate: int, clock: Callable[[float], datetime], until: Callable[[float], bool]
    ) -> None:
        """Write so many events a second; `clock` and `until` get the seconds since the begin."""
        began, written = time.monotonic(), 0
        while until(passed := time.monotonic() - began):
            due = int(passed * rate) - written
            self.write(due, clock(passed))
            written += due
            self._writer.poll()
            time.sleep(0.02)
        self.flush()


def latencies(load: Load, commits: list[Commit], begin: Ends) -> np.ndarray:
    """Return the seconds from the writing of each record behind `begin` to its batch's commit."""
    seconds, at = [], dict(begin)
    for commit in commits:
        for number, end in commit.ends.items():
            start = at.get(number, 0)
            seconds.append(commit.at - np.array(load.times[number][start:end]))
            at[number] = max(end, start)
    return np.concatenate(seconds) if seconds else np.array([])


def event_clock(begin: datetime, speed: float) -> Callable[[float], datetime]:
    """Return a clock of events that begins somewhere and is faster than ours."""
    return lambda passed: begin + timedelta(seconds=passed * speed)


def _now(_passed: float) -> datetime:
    return datetime.now(UTC)


def write_both(folder: Path, servers: str, partitions: int, shape: Shape) -> None:
    """Write the events of a shape as lines of JSON: into files, one a batch, and into a topic.

    The topic has the name of the folder, and each merchant in one partition.
    """
    write_parquet(folder, shape)
    writer = Writer(servers)
    for path in sorted(folder.glob("[0-9]*.parquet")):
        table = pq.read_table(path)
        written = lines(table).to_pylist()
        # One after the other: Spark takes the oldest first.
        path.write_text("".join(f"{line}\n" for line in written))
        path.rename(path.with_suffix(".json"))
        for line, partition in zip(written, partition_of(table, partitions).tolist(), strict=True):
            writer.write(folder.name, line, partition=partition)
        writer.flush(FLUSH_S)


def lines(table: pa.Table) -> pa.Array:
    """Return each event as a line of JSON."""
    texts = {
        **{name: table[name] for name in ("event_id", "merchant_id", "type", "currency")},
        "occurred_at": pc.strftime(table["occurred_at"], "%Y-%m-%dT%H:%M:%SZ"),
    }
    parts: list[pa.Array | str] = ["{"]
    for name, column in texts.items():
        parts += [f'"{name}":"', column, '",']
    parts += ['"amount_minor":', table["amount_minor"].cast(pa.string()), "}"]
    return pc.binary_join_element_wise(*parts, "")


def partition_of(table: pa.Table, partitions: int) -> np.ndarray:
    """Return the partition of each event, by its merchant."""
    merchant = table["merchant_id"].combine_chunks().dictionary_encode()
    names = [int(name.removeprefix("m_"), 16) for name in merchant.dictionary.to_pylist()]
    return (np.array(names) % partitions)[merchant.indices.to_numpy()]


PARTS = {"throughput": throughput, "steady": steady, "catch_up": catch_up}

if __name__ == "__main__":
    main("source", Sizes, PARTS, about=__doc__ or "")
