"""`make bench-neighbours`: a healthy endpoint's throughput and p99, beside faults and without them.

A benchmark is not a test: whatever the figures are, it ends with 0. A lost delivery ends it with 1.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.machine import git_commit, machine
from tests.benchmarks.common.runs import spread
from tests.benchmarks.common.tables import table
from tests.benchmarks.dispatch.programs import receiver
from tests.benchmarks.sink.server import server
from tests.support.dispatch.dispatching import add_endpoint, dispatching
from tests.support.dispatch.name_server import name_server
from tests.support.dispatch.webhooks import answer, listening
from tests.support.job.decisions import Decisions

REPORT = Path(".holdfast/bench/neighbours.json")
BENT = "tests.support.dispatch.bent_dispatch"
NEIGHBOURS = 8
PACED_BATCHES, PACED_SUBJECTS, PACED_S = 100, 20, 0.05
BURST_SUBJECTS, BURST_EACH = 1_000, 4
CLOCK_AHEAD_S = 600

_LEFT = """
    SELECT count(*) FROM holdfast.lane WHERE endpoint_id = %s AND delivered_sequence < last_sequence
"""
_DELIVERED = """
    SELECT count(*), extract(epoch FROM max(a.finished_at) - min(e.created_at))::float8,
           percentile_cont(0.99)
               WITHIN GROUP (ORDER BY extract(epoch FROM a.finished_at - e.created_at))
    FROM holdfast.attempt a
    JOIN holdfast.entry e USING (subject_id, sequence)
    JOIN holdfast.subject s ON s.id = a.subject_id
    WHERE a.endpoint_id = %s AND a.outcome = 'delivered' AND s.name LIKE %s
"""
_FAULTY = """
    SELECT count(*) FILTER (WHERE a.outcome IS NOT NULL),
           (SELECT count(*) FROM holdfast.dead_letter)
    FROM holdfast.attempt a WHERE a.endpoint_id <> %s
"""

Dispatch = Callable[..., Any]
"""Start one more dispatcher, with more words before its command."""


@contextmanager
def _none(db: psycopg.Connection, _dispatch: Dispatch) -> Iterator[None]:
    """As many neighbours, which no decision is for."""
    _add_neighbours(db, lambda _: "http://127.0.0.1:9/", types=["nothing.at_all"])
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
    _add_neighbours(db, lambda _: "http://127.0.0.1:9/", types=["nothing.at_all"])
    with tempfile.NamedTemporaryFile("w", suffix=".clock") as file:
        file.write(str(CLOCK_AHEAD_S))
        file.flush()
        with dispatch("--clock-file", file.name):
            yield


CASES = {"none": _none, "silent names": _names, "wrong secret": _secret, "wrong clock": _clock}


def main() -> None:
    """Run the cases in turns, and print both columns of each."""
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.neighbours")
    words.add_argument("--rounds", type=int, default=3)
    rounds = words.parse_args().rounds
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as running:
        for number in range(rounds):
            for name, fault in CASES.items():
                runs[name].append(_run(fault, running.dsn, Path(folder) / f"{number}.log"))
                print(name, runs[name][-1], flush=True)
    found = {
        name: {figure: spread([run[figure] for run in each]) for figure in each[0]}
        for name, each in runs.items()
    }
    about = {"git_commit": git_commit(), "machine": machine(), "rounds": rounds}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({**about, "cases": found}, indent=2) + "\n")
    head = ("neighbours", "deliveries/s", "p99 ms", "attempts at them", "dead letters")
    print(table("a healthy endpoint beside", head, [_row(name, found[name]) for name in CASES]))


def _row(name: str, figures: dict[str, dict[str, float]]) -> list[str]:
    shown = ("per_s", "p99_ms", "attempts", "dead")
    return [name, *(f"{figures[figure]['median']:,.0f}" for figure in shown)]


def _run(fault: Callable[..., Any], server_dsn: str, log: Path) -> dict[str, float]:
    with ExitStack() as stack:
        dsn = stack.enter_context(fresh(server_dsn))
        names = stack.enter_context(name_server())
        db = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        to = stack.enter_context(receiver())
        decisions = stack.enter_context(Decisions(dsn))
        healthy = add_endpoint(db, to.url, breaker_threshold=10, schedule_seconds=[5] * 10)

        def dispatch(*bends: str) -> Any:
            launcher = (BENT, "--name-server", names.address, *bends)
            path = log.with_suffix(f".{len(bends)}.log")
            return dispatching(dsn, path, "--doorbell", launcher=launcher)

        stack.enter_context(fault(db, dispatch))
        with dispatch() as process:
            process.says("dispatcher.started")
            begun = time.monotonic()
            for batch in range(PACED_BATCHES):
                decisions.write(*(f"paced_{n}" for n in range(PACED_SUBJECTS)))
                time.sleep(max(0.0, begun + (batch + 1) * PACED_S - time.monotonic()))
            process.until(lambda: _one(db, _LEFT, healthy) == (0,))
            decisions.write(*[f"burst_{n}" for n in range(BURST_SUBJECTS)] * BURST_EACH)
            process.until(lambda: _burst_is_over(db, healthy))
        paced, _, p99 = _one(db, _DELIVERED, healthy, "paced%")
        burst, seconds, _ = _one(db, _DELIVERED, healthy, "burst%")
        if (paced, burst) != (PACED_BATCHES * PACED_SUBJECTS, BURST_SUBJECTS * BURST_EACH):
            raise SystemExit(f"lost or doubled: {paced}, {burst}")
        attempts, dead = _one(db, _FAULTY, healthy)
    return {"per_s": burst / seconds, "p99_ms": p99 * 1000, "attempts": attempts, "dead": dead}


def _burst_is_over(db: psycopg.Connection, healthy: int) -> bool:
    (lanes,) = _one(db, "SELECT count(*) FROM holdfast.lane WHERE endpoint_id = %s", healthy)
    return lanes == PACED_SUBJECTS + BURST_SUBJECTS and _one(db, _LEFT, healthy) == (0,)


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
    main()
