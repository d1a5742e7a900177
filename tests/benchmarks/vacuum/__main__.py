"""What autovacuum's settings do to claims: a backlog that is drained at a steady pace.

    python -m tests.benchmarks.vacuum [--cases NAMES] [--minutes M] [--entries N] [--rate R]

One process claims and settles without sending, one entry of a lane at a time, so each delivery
leaves two dead versions of a lane; a batch of new entries comes in every second. Each case has a
server of its own, with the settings of `tests.benchmarks.sink.server.sized`. The report has the
cases of earlier runs of the same sizes too.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.machine import git_commit, machine
from tests.benchmarks.common.tables import table
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.backlog import Turn, holding, turn
from tests.benchmarks.dispatch.waiting import fill
from tests.benchmarks.sink.rounds import checkpoint
from tests.benchmarks.sink.server import server, sized

REPORT: Final = Path(".holdfast/bench/vacuum.json")
CONNECTIONS: Final = 64
LANES: Final = 128
"""Of one claim."""
FEED_ENTRIES: Final = 500
"""New entries of a second."""
PARTS: Final = 5
"""The run is divided in so many parts of equal length; the first and the last are shown."""


@dataclass(frozen=True, slots=True)
class Case:
    """How tables and server are set."""

    about: str
    tables: tuple[str, ...] = ()
    server: dict[str, str] = field(default_factory=dict)
    held: bool = False


_OWN = "autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay"
CASES: Final = {
    "shipped": Case("the tables as Holdfast makes them"),
    "defaults": Case(
        "no settings of the tables: the server's defaults",
        tuple(f"ALTER TABLE holdfast.{name} RESET ({_OWN})" for name in ("lane", "endpoint_pace")),
    ),
    "throttled": Case(
        "as shipped, but with the server's cost delay (2 ms)",
        ("ALTER TABLE holdfast.lane RESET (autovacuum_vacuum_cost_delay)",),
    ),
    "often": Case(
        "as shipped, with a look every 5 s instead of every minute",
        server={"autovacuum_naptime": "5s"},
    ),
    "held": Case("as shipped, with an old snapshot held", held=True),
    "held_often": Case(
        "the same with a look every 5 s", server={"autovacuum_naptime": "5s"}, held=True
    ),
    "off": Case(
        "no autovacuum of lanes", ("ALTER TABLE holdfast.lane SET (autovacuum_enabled = off)",)
    ),
}

_LOOK: Final = """
SELECT n_dead_tup, autovacuum_count, pg_relation_size('holdfast.lane') AS heap,
    pg_indexes_size('holdfast.lane') AS indexes
FROM pg_stat_all_tables WHERE relid = 'holdfast.lane'::regclass
"""


@dataclass(frozen=True, slots=True)
class Look:
    """The table of lanes at one moment."""

    dead: int
    vacuums: int
    heap: int
    indexes: int


@dataclass
class Watched:
    """What a run has seen."""

    length_s: float
    turns: list[tuple[float, Turn]] = field(default_factory=list)
    """With the second in which it ended."""
    looks: list[Look] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the whole run, and of its first and last part."""
        entries = sum(each.entries for _, each in self.turns)
        return {
            "entries_per_second": entries / self.length_s,
            "first": self._part(0),
            "last": self._part(PARTS - 1),
            "dead_max": max(each.dead for each in self.looks),
            "vacuums": self.looks[-1].vacuums - self.looks[0].vacuums,
            "before": asdict(self.looks[0]),
            "after": asdict(self.looks[-1]),
        }

    def _part(self, number: int) -> dict[str, float]:
        length = self.length_s / PARTS
        turns = [each for at, each in self.turns if number * length <= at < (number + 1) * length]
        claims = [each.claim_us * each.entries / 1000 for each in turns]
        return {
            "us_per_entry": statistics.median(each.claim_us + each.settle_us for each in turns),
            "claim_ms": statistics.median(claims),
            "claim_ms_p99": statistics.quantiles(claims, n=100)[-1],
            "capacity_per_second": sum(each.entries for each in turns)
            / sum((each.claim_us + each.settle_us) * each.entries / 1e6 for each in turns),
        }


def main() -> None:
    """Measure the cases that were asked for."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.vacuum")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--minutes", type=float, default=2.5, help="of load, for each case")
    parser.add_argument("--entries", type=int, default=1_000_000, help="that wait at the start")
    parser.add_argument("--rate", type=int, default=4_000, help="deliveries a second")
    given = parser.parse_args()
    sizes = {"minutes": given.minutes, "entries": given.entries, "rate": given.rate}
    report = _begun(sizes)
    for name in given.cases.split(","):
        report["cases"][name] = _measured(CASES[name], given)
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(json.dumps(report, indent=2) + os.linesep)
    _show(report)


def _begun(sizes: dict[str, Any]) -> dict[str, Any]:
    last = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    cases = last["cases"] if last.get("sizes") == sizes else {}
    about = {"git_commit": git_commit(), "machine": machine(), "sizes": sizes}
    return {**about, "cases": cases}


def _measured(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        server(Path(folder), sized() | case.server) as running,
        fresh(running.dsn) as dsn,
    ):
        fill(dsn, given.entries, CONNECTIONS)
        with psycopg.connect(dsn, autocommit=True) as db:
            for change in case.tables:
                db.execute(change.encode())
        checkpoint(running.dsn)
        with holding(dsn, held=case.held):
            watched = asyncio.run(_load(dsn, given.minutes * 60, given.rate, given.entries))
    return watched.figures()


async def _load(dsn: str, length_s: float, rate: int, waiting: int) -> Watched:
    watched, store, over = Watched(length_s), PostgresStore(dsn), asyncio.Event()
    await store.open()
    helpers = [
        asyncio.create_task(_feed(dsn, store, over, waiting)),
        asyncio.create_task(asyncio.to_thread(_look, dsn, watched, over)),
    ]
    try:
        (row,) = await store.endpoints()
        began, done = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < length_s:
            if done > passed * rate:
                await asyncio.sleep(done / rate - passed)
                continue
            taken = await turn(store, row.endpoint, LANES, each=1)
            if taken is None:
                raise RuntimeError("nothing is due: take more entries, or a lower rate")
            done += taken.entries
            watched.turns.append((time.perf_counter() - began, taken))
    finally:
        over.set()
        try:
            await asyncio.gather(*helpers)
        finally:
            await store.close()
    return watched


async def _feed(dsn: str, store: PostgresStore, over: asyncio.Event, waiting: int) -> None:
    """Write and route a batch every second, of subjects that have no lane yet."""
    outbox = jobs.Outbox(dsn)
    try:
        for number in itertools.count():
            first = waiting + number * FEED_ENTRIES
            await asyncio.to_thread(outbox.write, range(first, first + FEED_ENTRIES))
            await store.route(1)
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 1)
            if over.is_set():
                return
    finally:
        outbox.close()


def _look(dsn: str, watched: Watched, over: asyncio.Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        while True:
            watched.looks.append(Look(*db.execute(_LOOK).fetchone() or (0, 0, 0, 0)))
            if over.is_set():
                return
            time.sleep(1)


def _show(report: dict[str, Any]) -> None:
    head = (
        "case",
        "entries/s",
        "us an entry, first",
        "last",
        "claim ms, last",
        "p99",
        "claimable/s, last",
        "dead rows, most",
        "autovacuums",
        "lane MB, before",
        "after",
        "indexes, before",
        "after",
    )
    lines = []
    for name, found in report["cases"].items():
        first, last, before, after = (found[k] for k in ("first", "last", "before", "after"))
        lines.append(
            (
                name,
                f"{found['entries_per_second']:,.0f}",
                f"{first['us_per_entry']:.0f}",
                f"{last['us_per_entry']:.0f}",
                f"{last['claim_ms']:.2f}",
                f"{last['claim_ms_p99']:.1f}",
                f"{last['capacity_per_second']:,.0f}",
                f"{found['dead_max']:,}",
                str(found["vacuums"]),
                *(f"{each[k] / 1e6:.0f}" for k in ("heap", "indexes") for each in (before, after)),
            )
        )
    sizes = report["sizes"]
    title = f"{sizes['entries']:,} entries wait, {sizes['rate']:,} a second are delivered"
    print(table(f"{title}, {sizes['minutes']:g} minutes", head, lines))
    for name in report["cases"]:
        print(f"{name}: {CASES[name].about}")
    print(f"\nreport: {REPORT}")


if __name__ == "__main__":
    main()
