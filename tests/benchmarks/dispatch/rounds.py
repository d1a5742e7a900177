"""The cases side by side: each run with a process, a receiver and a database of its own, in turns.

A database is filled once for a case and a shape, and copied for each run.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.processes import PeakRss, processor_seconds
from tests.benchmarks.common.runs import Missing, spread
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.cases import SETTLED, Case
from tests.benchmarks.dispatch.peers_installed import command
from tests.benchmarks.dispatch.programs import Receiver, Work, peers, receiver, working
from tests.benchmarks.dispatch.shapes import SHAPES
from tests.benchmarks.dispatch.sizes import Sizes
from tests.benchmarks.sink.rounds import checkpoint
from tests.benchmarks.sink.server import Server

LOOK_S = 0.02
SETTLED_LOOK_S = 0.005

_LEFT = """
SELECT
    (SELECT count(*) FROM holdfast.lane WHERE delivered_sequence < last_sequence),
    (SELECT count(*) FROM holdfast.attempt WHERE outcome = 'delivered'),
    (SELECT count(*) FROM holdfast.attempt WHERE outcome <> 'delivered')
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run found."""

    seconds: float
    """From the first arrival until nothing is left to settle; of a bare loop, to the last one."""
    arrived_s: float
    """From the first arrival to the last."""
    most_s: float
    """From the first arrival to that of the 99th of every hundred."""
    peak_bytes: int
    """Resident memory at most of the processes that deliver."""
    client_s: float
    """Processor time of the process that delivers."""
    server_s: float
    """Processor time of the database server; 0 where it is not ours."""
    received: dict[str, Any]
    """The receiver's figures."""


@dataclass
class Found:
    """Runs by case, and why a case has none."""

    runs: dict[str, list[Run]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def measure(
    cases: Mapping[str, Case],
    shape: str,
    sizes: Sizes,
    server: Server,
    *,
    count: int,
    rounds: int,
    options: Sequence[str] = (),
) -> Found:
    """Run each case once a round, in turn; `options` are the receiver's."""
    found = Found()
    subjects = SHAPES[shape].subjects(sizes, count)
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="holdfast-bench-") as path:
        folder = Path(path)
        outbox = stack.enter_context(_outbox(server, shape, subjects, sizes, folder))
        filled: dict[tuple[str, str], str] = {}
        for number in range(rounds):
            for name, case in cases.items():
                if name in found.missing:
                    continue
                try:
                    is_peer = case.kind != "ours" and case.queues
                    if is_peer and (case.program, case.option) not in filled:
                        loaded = _loaded(case, server, shape, folder, sizes)
                        filled[case.program, case.option] = stack.enter_context(loaded)
                    template = filled.get((case.program, case.option), outbox)
                    run = _run(case, server, template, count, sizes, folder, options)
                except Missing as reason:
                    found.missing[name] = str(reason)
                    print(f"  {name:<20} missing: {reason}", flush=True)
                    continue
                found.runs.setdefault(name, []).append(run)
                rate, inverted = count / run.seconds, run.received["inversions"]
                told = f"{rate:>9,.0f} deliveries/s  {inverted} out of order"
                print(f"  round {number + 1}  {name:<20}{told}", flush=True)
    return found


def figures(runs: Sequence[Run], count: int) -> dict[str, Any]:
    """The figures of one case over its rounds."""
    return {
        **spread([count / run.seconds for run in runs]),
        "unit": "deliveries/s",
        "to_arrival": spread([count / run.arrived_s for run in runs]),
        "to_99_percent": spread([0.99 * count / run.most_s for run in runs]),
        "peak_rss_bytes": max(run.peak_bytes for run in runs),
        "rounds": len(runs),
        "jobs": count,
        "cpu_us": spread([run.client_s / count * 1e6 for run in runs]),
        "server_cpu_us": spread([run.server_s / count * 1e6 for run in runs]),
        "receiver_cpu_us": spread([run.received["processor_s"] / count * 1e6 for run in runs]),
        **{
            name: max(run.received[name] for run in runs)
            for name in ("inversions", "overlaps", "connections", "unsigned")
        },
        "duplicates": max(run.received["requests"] - run.received["distinct"] for run in runs),
    }


@contextmanager
def _outbox(
    server: Server, shape: str, subjects: Sequence[int], sizes: Sizes, folder: Path
) -> Iterator[str]:
    with fresh(server.dsn) as dsn:
        jobs.add_endpoint(dsn, sizes.connections, sizes.days)
        jobs.write(dsn, subjects, SHAPES[shape].ours)
        jobs.export(dsn, subjects, folder / "jobs.jsonl")
        yield dsn


@contextmanager
def _loaded(case: Case, server: Server, shape: str, folder: Path, sizes: Sizes) -> Iterator[str]:
    words = [*command(case), "load"]
    with empty(server.dsn) as dsn:
        lines, transaction = folder / "jobs.jsonl", SHAPES[shape].peers
        variables = peers(case, dsn, lines, sizes.connections, transaction)
        done = subprocess.run(
            words, env={**os.environ, **variables}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Missing(f"its jobs could not be added: {last}")
        yield dsn


@contextmanager
def empty(server: str) -> Iterator[str]:
    """Yield the DSN of a new database without our tables."""
    name = f"holdfast_bench_{uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield make_conninfo(server, dbname=name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _run(
    case: Case,
    server: Server,
    template: str,
    count: int,
    sizes: Sizes,
    folder: Path,
    options: Sequence[str],
) -> Run:
    with fresh(server.dsn, copy_of=template) as dsn, receiver(*options) as to:
        checkpoint(server.dsn)
        with working(case, dsn, to, sizes.connections, folder) as work:
            server_s = processor_seconds(server.pid) if server.pid else 0.0
            with PeakRss(work.process.pid) as peak:
                _await_all(work, to, count, sizes.limit_seconds)
                settled_s = _await_settled(case, dsn, work, sizes.limit_seconds)
            client_s = work.used_s()
            server_s = processor_seconds(server.pid) - server_s if server.pid else 0.0
        received = to.figures()
        if case.kind == "ours":
            _check(dsn, count, received)
    first_s, last_s = received["first_s"], received["last_s"]
    return Run(
        max(settled_s, last_s) - first_s,
        last_s - first_s,
        received["most_s"] - first_s,
        peak.bytes,
        client_s,
        server_s,
        received,
    )


def _await_all(work: Work, to: Receiver, count: int, limit_s: float) -> None:
    end = work.began_s + limit_s
    while (arrived := to.figures()["distinct"]) < count:
        if work.process.poll() is not None:
            raise Missing(f"it ended with {work.process.returncode} after {arrived} deliveries")
        if time.monotonic() > end:
            raise Missing(f"it delivered {arrived:,} of {count:,} in {limit_s:g} s")
        time.sleep(LOOK_S)


def _await_settled(case: Case, dsn: str, work: Work, limit_s: float) -> float:
    """Wait until nothing is left in the tables; returns the moment, 0 where there are none."""
    query = SETTLED.get("ours" if case.kind == "ours" else case.program)
    if query is None:
        return 0.0
    with psycopg.connect(dsn, autocommit=True) as db:
        while not (db.execute(query.encode()).fetchone() or (False,))[0]:
            if time.monotonic() > work.began_s + limit_s:
                raise Missing(f"it did not settle everything in {limit_s:g} s")
            time.sleep(SETTLED_LOOK_S)
        return time.monotonic()


def _check(dsn: str, count: int, received: Mapping[str, Any]) -> None:
    with psycopg.connect(dsn) as db:
        left, delivered, other = db.execute(_LEFT).fetchone() or (0, 0, 0)
    if left or delivered < count or other or received["inversions"] or received["unsigned"]:
        raise RuntimeError(
            f"holdfast: {left} lanes not at their end, {delivered} of {count} attempts delivered,"
            f" {other} not, {received['inversions']} out of order,"
            f" {received['unsigned']} without a signature"
        )
