"""The real job on a topic and a real Postgres, as a process, and a producer beside it."""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from holdfast.deploy.local.kafka.topics import Writer
from holdfast.spark_app.input import connector
from tests.benchmarks.operator.rules import POLICY_TEXT
from tests.support.job.job_process import JobProcess, running

INTERVAL = "500ms"
BASE = datetime(2024, 11, 4, 12, tzinfo=UTC)
MERCHANTS = 5_000
PAUSE_S = 0.02
FLUSH_S = 300.0

Ends = dict[int, int]


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
        numbers = sorted(int(path.name) for path in folder.glob("[0-9]*"))
        return [
            Commit((folder / str(number)).stat().st_mtime, self._ends(number))
            for number in numbers
            if number > after
        ]

    def newest(self) -> Ends:
        """Return where the newest recorded batch ends; empty before the first."""
        numbers = [int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*")]
        return self._ends(max(numbers)) if numbers else {}

    def until_read(self, ends: Ends) -> None:
        """Wait until the job has recorded everything up to these offsets."""
        self.process.until(
            lambda: all(self.newest().get(number, 0) >= end for number, end in ends.items())
        )

    def _ends(self, number: int) -> Ends:
        line = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()[2]
        return {int(one): end for one, end in json.loads(line)[self.topic].items()}


@contextmanager
def reading(
    folder: Path, dsn: str, servers: str, topic: str, stream: str, *options: str
) -> Iterator[Reading]:
    """Start `holdfast job run` on a topic; whatever is left of it at the end is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.toml").write_text(POLICY_TEXT)
    checkpoint = folder / stream
    words = [
        *(sys.executable, "-m", "holdfast.dispatcher.cli.main", "job", "run"),
        *("--bootstrap-servers", servers, "--topic", topic, "--checkpoint", str(checkpoint)),
        *("--stream", stream, "--policy", str(folder / "policy.toml")),
        *("--trigger-interval", INTERVAL, "--keep-batches", "100000", *options),
    ]
    jars = {connector.ENVIRONMENT: str(Path(connector.STAGED).absolute())}
    with running(folder, dsn, words, jars) as process:
        yield Reading(process, checkpoint, topic)


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

    def write(self, count: int, occurred_at: datetime, partition: int | None = None) -> None:
        """Write events of one moment, each merchant into one partition, or all into one."""
        moment, now = occurred_at.isoformat().replace("+00:00", "Z"), time.time()
        for number in itertools.islice(self._serial, count):
            merchant = number * 7919 % MERCHANTS
            into = merchant % len(self.times) if partition is None else partition
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
        self, rate: int, clock: Callable[[float], datetime], go_on: Callable[[float], bool]
    ) -> None:
        """Write so many events a second; `clock` and `go_on` get the seconds since the begin."""
        began, written = time.monotonic(), 0
        while go_on(passed := time.monotonic() - began):
            due = int(passed * rate) - written
            self.write(due, clock(passed))
            written += due
            self._writer.poll()
            time.sleep(PAUSE_S)
        self.flush()


def latencies(load: Load, commits: list[Commit], begin: Ends) -> np.ndarray:
    """Return the seconds from the writing of each record behind `begin` to its batch's commit."""
    found, at = [], dict(begin)
    for commit in commits:
        for number, end in commit.ends.items():
            start = at.get(number, 0)
            found.append(commit.at - np.array(load.times[number][start:end]))
            at[number] = max(end, start)
    return np.concatenate(found) if found else np.array([])


def event_clock(begin: datetime, speed: float) -> Callable[[float], datetime]:
    """Return a clock of events that begins somewhere and is faster than ours."""
    return lambda passed: begin + timedelta(seconds=passed * speed)
