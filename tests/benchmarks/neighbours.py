"""`make bench-neighbours`: a healthy endpoint's throughput and p99, beside faults and without them.

A lost or doubled delivery ends it with 1.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from tests.benchmarks.common.receiver import receiver
from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.common.server import Server
from tests.support.dispatch.dispatching import add_endpoint, dispatching
from tests.support.dispatch.name_server import name_server
from tests.support.dispatch.webhooks import answer, listening
from tests.support.job.decisions import Decisions

BENT = "tests.support.dispatch.bent_dispatch"
NEIGHBOURS = 8
PACED_SUBJECTS, PACED_S = 20, 0.05
BURST_EACH = 4
CLOCK_AHEAD_S = 600
NOWHERE, NOTHING = "http://127.0.0.1:9/", ["nothing.at_all"]

LANES = "SELECT count(*) FROM holdfast.lane WHERE endpoint_id = %s"
LEFT = f"{LANES} AND delivered_sequence < last_sequence"
DELIVERED = """
    SELECT count(*), extract(epoch FROM max(a.finished_at) - min(e.created_at))::float8,
           percentile_cont(0.99)
               WITHIN GROUP (ORDER BY extract(epoch FROM a.finished_at - e.created_at))
    FROM holdfast.attempt a
    JOIN holdfast.entry e USING (subject_id, sequence)
    JOIN holdfast.subject s ON s.id = a.subject_id
    WHERE a.endpoint_id = %s AND a.outcome = 'delivered' AND s.name LIKE %s
"""
FAULTY = """
    SELECT count(*) FILTER (WHERE a.outcome IS NOT NULL),
           (SELECT count(*) FROM holdfast.dead_letter)
    FROM holdfast.attempt a WHERE a.endpoint_id <> %s
"""

Dispatch = Callable[..., Any]
"""Start one more dispatcher, with more words before its command."""


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    rounds: int = 3
    batches: int = 100
    """Of twenty decisions, one every 50 ms: their p99 is measured."""
    burst: int = 1_000
    """Subjects with four decisions each at once: their rate is measured."""
    quick: ClassVar = {"rounds": 1, "batches": 20, "burst": 100}


@contextmanager
def _none(db: psycopg.Connection, _dispatch: Dispatch) -> Iterator[None]:
    """As many neighbours, which no decision is for."""
    _add_neighbours(db, lambda _: NOWHERE, types=NOTHING)
    yield


@contextmanager
def _names(db: psycopg.Connection, _dispatch: Dispatch) -> Iterator[None]:
    """Neighbours whose name server never answers."""
    _add_neighbours(db, lambda number: f"http://silent-{number}.test/")
    yield


@contextmanager
def _secret(db: psycopg.Connection, _dispatch: Dispatch) -> Iterator[None]:
    """Neighbours that refuse our signature."""
    with listening() as refusing:
        refusing.script = lambda _seen: answer(401)
        _add_neighbours(db, lambda _: refusing.url)
        yield


@contextmanager
def _clock(db: psycopg.Connection, dispatch: Dispatch) -> Iterator[None]:
    """A second dispatcher whose clock is ten minutes ahead."""
    _add_neighbours(db, lambda _: NOWHERE, types=NOTHING)
    with tempfile.NamedTemporaryFile("w", suffix=".clock") as file:
        file.write(str(CLOCK_AHEAD_S))
        file.flush()
        with dispatch("--clock-file", file.name):
            yield


CASES = {"none": _none, "silent names": _names, "wrong secret": _secret, "wrong clock": _clock}


def neighbours(bench: Bench[Sizes]) -> None:
    """Each case with a database, a dispatcher and a healthy endpoint of its own."""
    running, numbers = bench.server, itertools.count()

    def run(fault: Callable[..., Any]) -> Run:
        return _run(fault, running, bench.folder / f"{next(numbers)}.log", bench.size)

    cases = {name: partial(run, fault) for name, fault in CASES.items()}
    ratios = {f"{name} vs none": (name, "none") for name in cases if name != "none"}
    title = "A healthy endpoint beside"
    bench.compare(title, cases, bench.size.rounds, by="deliveries/s", ratios=ratios)


def _run(fault: Callable[..., Any], server_: Server, log: Path, size: Sizes) -> Run:
    with ExitStack() as stack:
        dsn = stack.enter_context(server_.fresh())
        names = stack.enter_context(name_server())
        db = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        to = stack.enter_context(receiver())
        decisions = stack.enter_context(Decisions(dsn))
        healthy = add_endpoint(db, to.url, breaker_threshold=10, schedule_seconds=[5] * 10)

        def dispatch(*bends: str) -> Any:
            launcher = (BENT, "--name-server", names.address, *bends)
            path = log.with_suffix(f".{len(bends)}.log")
            return dispatching(dsn, path, launcher=launcher)

        def is_over(lanes: int) -> bool:
            routed = _one(db, LANES, healthy) == (lanes,)
            return routed and _one(db, LEFT, healthy) == (0,)

        stack.enter_context(fault(db, dispatch))
        with dispatch() as process:
            process.says("dispatcher.started")
            begun = time.monotonic()
            for batch in range(size.batches):
                decisions.write(*(f"paced_{n}" for n in range(PACED_SUBJECTS)))
                time.sleep(max(0.0, begun + (batch + 1) * PACED_S - time.monotonic()))
            process.until(lambda: is_over(PACED_SUBJECTS))
            decisions.write(*[f"burst_{n}" for n in range(size.burst)] * BURST_EACH)
            process.until(lambda: is_over(PACED_SUBJECTS + size.burst))
        paced, _, p99 = _one(db, DELIVERED, healthy, "paced%")
        burst, seconds, _ = _one(db, DELIVERED, healthy, "burst%")
        if (paced, burst) != (size.batches * PACED_SUBJECTS, size.burst * BURST_EACH):
            raise RuntimeError(f"lost or doubled: {paced}, {burst}")
        attempts, dead = _one(db, FAULTY, healthy)
    row = {"deliveries/s": burst / seconds, "p99 ms": p99 * 1000}
    return {**row, "attempts at them": attempts, "dead letters": dead}


def _add_neighbours(db: psycopg.Connection, url: Callable[[int], str], **columns: Any) -> None:
    for number in range(NEIGHBOURS):
        row = {"schedule_seconds": [5] * 10, "breaker_threshold": 10, **columns}
        timeouts = {"connect_timeout_ms": 5_000, "total_timeout_ms": 30_000}
        add_endpoint(db, url(number), name=f"neighbour-{number}", **timeouts, **row)


def _one(db: psycopg.Connection, query: str, *values: object) -> tuple[Any, ...]:
    row = db.execute(query.encode(), values).fetchone()
    assert row is not None
    return row


if __name__ == "__main__":
    main("neighbours", Sizes, {"neighbours": neighbours}, about=__doc__ or "")
