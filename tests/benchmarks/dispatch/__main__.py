"""`make bench-dispatch`: deliveries a second, order and idle latency, beside other queues.

Ours losing a delivery or an order has no figure, and ends it with 1.
"""

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from holdfast.dispatcher.outbound.transport.engines import open_transport
from tests.benchmarks.common.processes import Peak, memory_of
from tests.benchmarks.common.receiver import Receiver, receiver
from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.common.server import Server
from tests.benchmarks.common.trees import HERE, Missing, Tree, percentiles
from tests.benchmarks.dispatch import installed, jobs
from tests.benchmarks.dispatch.cases import (
    CASES,
    LIBRARY_CLIENTS,
    ORDERED_PEERS,
    SETTLED,
    UNORDERED_PEERS,
    Case,
    Work,
    command,
    peers,
    working,
)
from tests.support.waiting import eventually

BATCH = 2_000
"""Jobs of a transaction in the parts `batch` and `order`."""

ORDERED = ("holdfast", *ORDERED_PEERS)
LEFT = """
SELECT
    (SELECT count(*) FROM holdfast.lane WHERE delivered_sequence < last_sequence),
    (SELECT count(*) FROM holdfast.attempt WHERE outcome = 'delivered'),
    (SELECT count(*) FROM holdfast.attempt WHERE outcome <> 'delivered')
"""


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    jobs: int = 20_000
    subjects: int = 5_000
    connections: int = 64
    rounds: int = 3
    limit_seconds: int = 180
    """How long one run may take before it is given up."""
    order_jobs: int = 8_000
    """At the receiver that takes its time."""
    trickled: int = 60
    """Jobs whose latency is measured, one by one."""
    days: int = 0
    """Days behind that have partitions, as retention leaves them."""
    quick: ClassVar = {
        "jobs": 2_000,
        "subjects": 500,
        "rounds": 1,
        "limit_seconds": 60,
        "order_jobs": 800,
    } | {"trickled": 4}


@dataclass
class Shape:
    """Jobs in some order, so many in a transaction, and the databases that are filled with them."""

    bench: Bench[Sizes]
    folder: Path
    subjects: list[int]
    ours: int
    """Entries of a transaction of our sink, which writes batches and nothing else."""
    theirs: int
    """Jobs of a transaction of the others."""
    options: tuple[str, ...] = ()
    """The receiver's."""
    filled: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def run(self, case: Case, tree: Tree) -> Run:
        """Run a case once, with a process, a receiver and a database of its own."""
        size, running, count = self.bench.size, self.bench.server, len(self.subjects)
        template = self.template(case, tree)
        with running.fresh(tree, copy_of=template) as dsn, receiver(*self.options) as to:
            running.checkpoint()
            with working(case, dsn, to, size.connections, self.folder, tree) as work:
                server_s = running.used_s()
                with Peak(memory_of(work.process.pid)) as peak:
                    _await_all(work, to, count, size.limit_seconds)
                    settled_s = _await_settled(case, dsn, work, size.limit_seconds)
                client_s, server_s = work.used_s(), running.used_s() - server_s
            received = to.figures()
            if not case.program:
                _check(dsn, count, received)
        first_s, last_s = received["first_s"], received["last_s"]
        return {
            # From the first arrival until nothing is left to settle; of a loop, to the last one.
            "deliveries/s": count / (max(settled_s, last_s) - first_s),
            "to arrival": count / (last_s - first_s),
            "to 99 of 100": 0.99 * count / (received["most_s"] - first_s),
            "us client": client_s / count * 1e6,
            "us server": server_s / count * 1e6,
            "us receiver": received["processor_s"] / count * 1e6,
            "MB": peak.most["bytes"] / 1e6,
            **{name: received[name] for name in ("inversions", "overlaps")},
            "duplicates": received["requests"] - received["distinct"],
        }

    def template(self, case: Case, tree: Tree) -> str:
        """Return a database with the jobs, which is filled once and copied for each run."""
        is_queue = bool(case.program and case.order)
        key = (case.program, case.option, "") if is_queue else ("", "", str(tree))
        if key not in self.filled:
            filling = self._loaded(case) if is_queue else self._written(tree)
            self.filled[key] = self.bench.enter(filling)
        return self.filled[key]

    @contextmanager
    def _written(self, tree: Tree) -> Iterator[str]:
        size = self.bench.size
        with self.bench.server.fresh(tree) as dsn:
            arguments = (dsn, self.subjects, self.ours, size.connections, size.days)
            tree.call("tests.benchmarks.dispatch.jobs:write", *arguments)
            if tree.names is None:
                jobs.export(dsn, self.subjects, self.folder / "jobs.jsonl")
            yield dsn

    @contextmanager
    def _loaded(self, case: Case) -> Iterator[str]:
        self.template(CASES["holdfast"], HERE)  # exports the jobs
        with self.bench.server.empty() as dsn:
            lines, connections = self.folder / "jobs.jsonl", self.bench.size.connections
            _peer(case, "load", peers(case, dsn, lines, connections, self.theirs))
            yield dsn


def _shape(
    name: str, cases: tuple[str, ...], bench: Bench[Sizes], **changes: Any
) -> dict[str, Any]:
    size, folder = bench.size, bench.folder / name
    folder.mkdir()
    chosen: dict[str, Any] = {"subjects": jobs.shuffled(size.jobs, size.subjects), "ours": 100}
    chosen |= {"theirs": 1, **changes}
    shape = Shape(bench, folder, **chosen)
    bench.found["versions"] |= installed.versions()
    # The jobs have to be there before a loop reads them.
    shape.template(CASES["holdfast"], HERE)
    ours = {n: partial(shape.run, CASES[n]) for n in cases if not CASES[n].program}
    others = {n: partial(shape.run, CASES[n], HERE) for n in cases if CASES[n].program}
    return bench.compare(
        f"Deliveries a second, {name}",
        bench.with_base(ours) | others,
        size.rounds,
        by="deliveries/s",
        labels={n: CASES[n].label for n in cases},
    )


def shuffled(bench: Bench[Sizes]) -> None:
    """Every case, in the main shape."""
    names = [n for n, case in CASES.items() if case.doorbell and case.processes == 1]
    runs = _shape("shuffled", tuple(names), bench)
    medians = {
        row["case"]: row["deliveries/s"]["median"]
        for row in bench.found["tables"]["Deliveries a second, shuffled"]["rows"]
    }
    bench.ratios(runs, "deliveries/s", ratios(medians, default_engine()))


def ratios(medians: Mapping[str, float], engine: str) -> dict[str, tuple[str, str]]:
    """Return what is compared; `engine` is the dispatcher's default one, peers are the best."""

    def best(names: tuple[str, ...]) -> str:
        return max((n for n in names if n in medians), key=medians.__getitem__, default="")

    return {
        "vs_bare_client": ("holdfast", f"loop_{engine}"),
        "vs_library_client": ("holdfast", best(LIBRARY_CLIENTS)),
        "vs_best_ordered_peer": ("holdfast", best(ORDERED_PEERS)),
        "vs_best_unordered_peer": ("holdfast", best(UNORDERED_PEERS)),
        "httpx_vs_bare_client": ("holdfast_httpx", "loop_httpx"),
    }


def default_engine() -> str:
    """Return the engine that `holdfast dispatch` takes when it is told none."""
    module = type(open_transport()).__module__
    return next(name for name in ("asyncio", "httpx") if name in module)


def processes(bench: Bench[Sizes]) -> None:
    """Ours with one process and with several."""
    _shape("processes", ("holdfast", "holdfast_2", "holdfast_4"), bench)


def burst(bench: Bench[Sizes]) -> None:
    """Four jobs of a subject in a row: those who keep the order."""
    _shape("burst", ORDERED, bench, subjects=jobs.burst(bench.size.jobs, bench.size.subjects))


def batch(bench: Bench[Sizes]) -> None:
    """Thousands of jobs in a transaction: those who keep the order."""
    _shape("batch", ORDERED, bench, ours=BATCH, theirs=BATCH)


def order(bench: Bench[Sizes]) -> None:
    """Whether a receiver that takes its time ever has two requests of a subject at once."""
    subjects = jobs.shuffled(bench.size.order_jobs, bench.size.subjects)
    options = ("--latency-ms", "5", "25")
    _shape("order", ORDERED, bench, subjects=subjects, ours=BATCH, theirs=BATCH, options=options)


def latency(bench: Bench[Sizes]) -> None:
    """Milliseconds from COMMIT to receiver while everything is idle."""
    size, running, rows = bench.size, bench.server, []
    subjects = list(range(size.trickled))
    with running.fresh() as dsn:
        jobs.write(dsn, subjects, len(subjects), size.connections)
        jobs.export(dsn, subjects, bench.folder / "jobs.jsonl")
    for name in bench.chosen(n for n, case in CASES.items() if case.order and case.trickles):
        case = CASES[name]
        try:
            with receiver("--times") as to:
                trickle = _peers_trickle if case.program else _our_trickle
                committed = trickle(case, size, running, bench.folder, to)
                arrived = to.figures()["times"]
        except Missing as reason:
            bench.missing(f"{name}_latency", reason)
            continue
        milliseconds = [(arrived[key] - moment) * 1000 for key, moment in committed.items()]
        rows.append({"case": name, "": case.label, **percentiles(milliseconds, 50, 99)})
        bench.say(rows[-1])
    bench.table("Commit to receiver, idle, ms", rows)


def _our_trickle(
    case: Case, size: Sizes, running: Server, folder: Path, to: Receiver
) -> Mapping[str, float]:
    draw, committed = random.Random(1), {}  # noqa: S311 - pauses, not a secret
    with running.fresh() as dsn:
        jobs.add_endpoint(dsn, size.connections, size.days)
        outbox = jobs.Outbox(dsn)
        with working(case, dsn, to, size.connections, folder):
            time.sleep(2)  # idle
            for subject in range(size.trickled):
                time.sleep(draw.uniform(0.3, 0.9))
                (key,) = outbox.write([subject])
                committed[key] = time.monotonic()
            eventually(lambda: to.figures()["distinct"] == size.trickled)
        outbox.close()
    return committed


def _peers_trickle(
    case: Case, size: Sizes, running: Server, folder: Path, to: Receiver
) -> Mapping[str, float]:
    nothing = folder / "nothing.jsonl"
    nothing.touch()
    with running.empty() as dsn:
        variables = peers(case, dsn, nothing, size.connections, 1)
        _peer(case, "load", variables)
        with working(case, dsn, to, size.connections, folder):
            time.sleep(2)  # idle
            result = _peer(case, "trickle", variables | {"BENCH_JOBS": str(folder / "jobs.jsonl")})
            eventually(lambda: to.figures()["distinct"] == size.trickled)
    committed: dict[str, float] = json.loads(result.splitlines()[-1])
    return committed


def _peer(case: Case, mode: str, variables: Mapping[str, str]) -> str:
    """Run a peer's program to its end; raises `Missing` with its last words."""
    words, environment = [*command(case), mode], {**os.environ, **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Missing(f"{mode} failed: {last}")
    return done.stdout


def _await_all(work: Work, to: Receiver, count: int, limit_s: float) -> None:
    end = work.began_s + limit_s
    while (arrived := to.figures()["distinct"]) < count:
        if work.process.poll() is not None:
            raise Missing(f"it ended with {work.process.returncode} after {arrived} deliveries")
        if time.monotonic() > end:
            raise Missing(f"it delivered {arrived:,} of {count:,} in {limit_s:g} s")
        time.sleep(0.02)


def _await_settled(case: Case, dsn: str, work: Work, limit_s: float) -> float:
    """Wait until nothing is left in the tables; returns the moment, 0 where there are none."""
    query = SETTLED.get(case.program)
    if query is None:
        return 0.0
    with psycopg.connect(dsn, autocommit=True) as db:
        while not (db.execute(query.encode()).fetchone() or (False,))[0]:
            if time.monotonic() > work.began_s + limit_s:
                raise Missing(f"it did not settle everything in {limit_s:g} s")
            time.sleep(0.005)
        return time.monotonic()


def _check(dsn: str, count: int, received: Mapping[str, Any]) -> None:
    with psycopg.connect(dsn) as db:
        left, delivered, other = db.execute(LEFT).fetchone() or (0, 0, 0)
    if left or delivered < count or other or received["inversions"] or received["unsigned"]:
        raise RuntimeError(
            f"holdfast: {left} lanes not at their end, {delivered} of {count} attempts delivered,"
            f" {other} not, {received['inversions']} out of order,"
            f" {received['unsigned']} without a signature"
        )


PARTS = {part.__name__: part for part in (shuffled, processes, burst, batch, order, latency)}

if __name__ == "__main__":
    main("dispatch", Sizes, PARTS, about=__doc__ or "")
