"""From an event to the action that it causes: files -> job -> outbox -> dispatcher -> payouts.

Each part is a process, and all share this machine. An event is timed when its file gets its name,
its action when the payouts service begins the transaction that applies it.

A *correction* changes a window that was published and can still be revised: its action comes with
the event's own batch. The merchants take turns, and each event takes one above its limit or back
below. A *closing* event is one behind the end of a window: the watermark that it moves holds from
the next batch on, which publishes the window.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from holdfast.deploy.local.demo import database, receiver
from holdfast.deploy.local.demo.interrupts import Interrupts
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.processes import Child, Processes
from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.postgres import EmbeddedPostgres
from tests.benchmarks.common.processes import PeakRss
from tests.benchmarks.latency.sizes import Rate, Sizes
from tests.benchmarks.operator.rules import SETTINGS

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

MEMORY_S = 2.0
"""Between two looks at the memory of the parts: a look walks all pages of the JVM."""

_APPLIED = """
SELECT merchant_id, sequence, extract(epoch FROM applied_at)::float8
FROM payouts.hold_history WHERE merchant_id = ANY (%s)
"""


Event = tuple[str, int, datetime]
"""Merchant, amount in minor units, and time."""


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
    peaks: dict[str, PeakRss]

    def memory(self) -> dict[str, int]:
        """Return the peak memory of each part so far, in bytes; a shared page counts once."""
        return {name: peak.bytes for name, peak in self.peaks.items()}

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

    def latencies(self, since: float, first: int) -> np.ndarray:
        """Return the seconds from each event written since a moment to its action.

        The event number `first` of a merchant has the action 1 of its sequence.
        """
        times = self.load.times
        rows = self.payouts.execute(_APPLIED, (list(times),)).fetchall()
        pairs = [(times[merchant][place - 1 + first], at) for merchant, place, at in rows]
        return np.array([at - written for written, at in pairs if written >= since])


@contextmanager
def running(folder: Path, options: Sequence[str]) -> Iterator[Parts]:
    """Start every part, with default settings and the doorbell; none is left at the end.

    `options` are more of `job run`.
    """
    layout = Layout(folder / "parts")
    layout.claim()
    layout.clear()
    layout.make_secret()
    layout.policy.write_text(POLICY)
    layout.events.mkdir()
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        server = stack.enter_context(EmbeddedPostgres(folder / "postgres", keep=False))
        holdfast_dsn, payouts_dsn = database.prepare(server.dsn)
        environment = {
            **spark_environment(),
            "HOLDFAST_DSN": holdfast_dsn,
            "HOLDFAST_ALLOW_SECRET_DIR": str(layout.secrets),
        }
        processes = stack.enter_context(Processes(layout.logs, environment))
        service, _url = receiver.start(processes, layout, payouts_dsn, interrupts)
        dispatcher = processes.start("dispatcher", ["dispatch", "--doorbell"])
        words = [
            *("job", "run", "--path", str(layout.events), "--policy", str(layout.policy)),
            *("--checkpoint", str(layout.checkpoint), "--stream", "exposure", "--doorbell"),
            *options,
        ]
        job = processes.start("job", words)
        payouts = stack.enter_context(psycopg.connect(payouts_dsn, autocommit=True))
        parts = (job, dispatcher, service)
        peaks = {
            each.name: stack.enter_context(PeakRss(each.process.pid, MEMORY_S, shared_once=True))
            for each in parts
        }
        yield Parts(Load(layout.events), payouts, parts, peaks)


def corrections(folder: Path, sizes: Sizes, rate: Rate) -> dict[str, Any]:
    """Measure events that correct a published window, at a rate."""
    merchants = [f"m_{number}" for number in range(sizes.merchants)]
    with running(folder, sizes.job_options) as parts:
        load = parts.load
        load.write([(name, 1, BEGIN) for name in merchants])
        load.write([("m_clock", 100_000, BEGIN), ("m_clock", 0, REVISABLE)])
        # Its action says that the window is published.
        parts.until(lambda: parts.applied() == 1)
        turns = _turns(merchants)
        for seconds in (sizes.warm_s, rate.seconds):
            since, before = time.time(), parts.applied()
            written = _steadily(rate.events_per_second, seconds, load, turns)
            parts.until(lambda b=before, w=written: parts.applied() >= b + w)
        return {
            "events_per_second": rate.events_per_second,
            "events": written,
            **_percentiles(parts.latencies(since, first=1)),
            "peak_bytes": parts.memory(),
        }


def _turns(merchants: list[str]) -> Iterator[Event]:
    """Yield events that each take a merchant above its limit, and the next time back below."""
    for amount in itertools.cycle((AMOUNT, -AMOUNT)):
        yield from ((name, amount, BEGIN) for name in merchants)


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


def closings(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Measure events that close the window before theirs, whose decision is the action."""
    draw = random.Random(0)  # noqa: S311 - moments, not a secret
    with running(folder, sizes.job_options) as parts:
        for number in range(sizes.closings + 1):
            behind = BEGIN + number * WINDOW + DELAY
            parts.load.write([("m_482", (2 * AMOUNT, 1)[number % 2], behind)])
            parts.until(lambda n=number: parts.applied() == n)
            time.sleep(draw.uniform(0.5, 1.5))
        # The first event closes nothing.
        return {"events": sizes.closings, **_percentiles(parts.latencies(0, first=1))}


def _percentiles(seconds: np.ndarray) -> dict[str, float]:
    found = np.percentile(seconds, [50, 95, 99, 100])
    return dict(zip(("p50_s", "p95_s", "p99_s", "max_s"), map(float, found), strict=True))
