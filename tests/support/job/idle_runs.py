"""Random runs of a job with an idle clock: events that arrive in bursts, and long silences.

A run plays Spark and the driver: a trigger in each interval, the real `IdleClock` between them, and
the watermark of Spark. What a tick adds to it is what `holdfast.spark_app.input.ticks` says in SQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import Event
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.lifecycle.idle_clock import IdleClock
from tests.support.job.exposure_runs import MINUTE, START, WINDOW, Batch, events

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MS = 1000
SECOND = 1000 * MS
LONG = WINDOW + 20 * MINUTE
"""A silence after which every window has ended, and every hold with it."""


@dataclass(frozen=True)
class Arrival:
    """Rows that become readable at a moment (microseconds)."""

    at: int
    rows: Sequence[Event]


@dataclass(frozen=True)
class Clocks:
    """Durations of a run, in microseconds."""

    interval: int
    timeout: int
    delay: int
    after: int
    """How long after a trigger the driver looks at the query."""


@dataclass(frozen=True)
class Trigger:
    """A batch, when it was planned, and whether it read a tick."""

    at: int
    batch: Batch
    tick: bool


@dataclass(frozen=True)
class IdleRun:
    """Everything that a run depends on."""

    arrivals: list[Arrival]
    clocks: Clocks
    settings: Settings
    until: int
    """The end of the silence after the last arrival."""


@st.composite
def idle_runs(draw: st.DrawFn, *, prompt: bool) -> IdleRun:
    """Draw a run; `prompt`: no event arrives later than the watermark delay after it occurred."""
    timeout = draw(st.sampled_from([1, 2, 10])) * MINUTE
    interval = timeout // draw(st.sampled_from([2, 3, 5]))
    delay = draw(st.sampled_from([0, 30, 300])) * SECOND
    clocks = Clocks(interval, timeout, delay, draw(st.integers(0, interval // MS - 1)) * MS)
    lags = st.integers(0, delay)
    if not prompt:
        lags = st.one_of(lags, st.integers(0, 40 * MINUTE))
    now, arrivals, number = START, [], 0
    for _ in range(draw(st.integers(1, 6))):
        now += draw(st.sampled_from([0, 1, 20, 61, 5 * 60, 16 * 60, 40 * 60])) * SECOND
        now += draw(st.integers(0, 1000)) * MS
        rows = []
        for row in draw(st.lists(events(), min_size=1, max_size=5)):
            number += 1
            lag = draw(lags)
            rows.append(row._replace(event_id=f"e{number}", occurred_at_us=now - lag))
        arrivals.append(Arrival(now, rows))
    settings = Settings(watermark_delay_us=delay)
    return IdleRun(arrivals, clocks, settings, now + LONG + 3 * timeout + delay)


def played(run: IdleRun) -> list[Trigger]:
    """Play a run; returns its batches, those without rows that follow the watermark too."""
    clocks, waiting = run.clocks, list(run.arrivals)
    seconds, watermark, known = START / SECOND, None, None
    done: list[Trigger] = []
    written: list[int] = []
    clock = IdleClock(clocks.timeout / SECOND, written.append, lambda: seconds)
    for now in range(START, run.until, clocks.interval):
        rows = [row for arrival in waiting if arrival.at <= now for row in arrival.rows]
        waiting = [arrival for arrival in waiting if arrival.at > now]
        has_rows = bool(rows or known)
        if has_rows:
            done.append(Trigger(now, Batch(rows, watermark), tick=known is not None))
            reached = [row.occurred_at_us for row in rows]
            if known is not None and now - known <= clocks.timeout:
                reached.append(now - clocks.timeout)
            moved = max((at // MS * MS - clocks.delay for at in reached), default=None)
            if moved is not None and (watermark is None or moved > watermark):
                watermark = moved
                done.append(Trigger(now, Batch([], watermark), tick=False))
        seconds, known = (now + clocks.after) / SECOND, None
        status = {"isDataAvailable": has_rows, "message": "Waiting for next trigger"}
        clock.ask(cast("StreamingQuery", SimpleNamespace(status=status)))
        clock.observe(len(rows))
        if written:
            written.clear()
            known = now + clocks.after - clocks.interval
    return done
