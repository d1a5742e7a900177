"""`make bench-queries`: how long every page, API read and list takes, on an outbox with a busy day.

The server is HOLDFAST_DSN's, or `--server DSN`: a database is made there, filled, and dropped.
`--database DSN` is one that was filled before, which gets a day's troubles where it has none. Pages
and reads are asked for over HTTP, one after the other; lists run in this process, connecting each
time, and once as a process of their own.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, ClassVar

import psycopg

from tests.benchmarks.common.filled import Filled, fill, trouble
from tests.benchmarks.common.processes import Peak, memory_of
from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.common.server import server, sized
from tests.benchmarks.common.trees import percentiles
from tests.benchmarks.queries.plans import Served, missed, plans_of_all, redelivery, served
from tests.benchmarks.queries.requests import LONG, Query, known, lists, pages, reads
from tests.support.command import holdfast

BAR_MS = 300.0
PACKAGES = ("fastapi", "uvicorn", "psycopg", "jinja2")
KINDS = {"console": "Pages of the console", "api": "Reads of the API", "cli": "Commands"}
COUNTED = (
    "entry",
    "attempt",
    "lane",
    "dead_letter",
    "quarantine",
    "operator_action",
    "replay_item",
)


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    entries: int = 1_000_000
    subjects: int = 100_000
    rounds: int = 9
    server: str = ""
    database: str = ""
    quick: ClassVar = {"entries": 200_000, "subjects": 20_000, "rounds": 2}


def queries(bench: Bench[Sizes]) -> None:
    """Each query once uncounted, then in turns with all others."""
    with _database(bench) as dsn:
        trouble(dsn)
        names = known(dsn)
        requests = [*pages(names, redelivery(dsn, names)), *reads(names)]
        if left := missed(requests):
            raise RuntimeError(f"no query goes to {', '.join(left)}")
        plans = plans_of_all(dsn, could=False)
        with served(dsn) as api, Peak(memory_of(api.pid)) as peak:
            times = _timed(bench, requests, api.query)
            long = [_asked_long(api, path) for path in sorted(LONG)]
        listed = lists(names)
        times |= _timed(bench, listed, partial(_list, dsn))
        processes = {each: _ms(partial(_list, dsn, each, process=True)) for each in listed}
        took = _ms(
            lambda: _list(dsn, Query("cli", "", ("check", "--since", "24h"), (0,)), process=True)
        )
        long.append({"": "holdfast check --since 24h", "s": took / 1000})
        counted = _counted(dsn)
    for kind, title in KINDS.items():
        rows = [_row(query, runs, processes) for query, runs in times.items() if query.kind == kind]
        bench.table(title, sorted(rows, key=lambda row: -float(row["median ms"])))
    late = [query.shows for query, runs in times.items() if not _is_within(runs)]
    bench.table("Queries that take long", long)
    bench.found["versions"] |= {each: version(each) for each in PACKAGES}
    bench.found |= {"statements": sorted(plans.names), "read_whole": plans.whole}
    full_scans = ", ".join(sorted(plans.whole)) or "none"
    bench.say(", ".join(f"{count:,} {name}" for name, count in counted.items()))
    bench.say(
        f"{len(plans.names)} statements; read entry, entry_key, attempt or lane whole: {full_scans}"
    )
    bench.say(f"peak memory of the server: {peak.most['bytes'] / 1e6:,.0f} MB")
    bench.say(
        f"{len(times) - len(late)} of {len(times)} queries have a median under {BAR_MS:.0f} ms"
        + (f"; not: {'; '.join(late)}" if late else "")
    )


@contextmanager
def _database(bench: Bench[Sizes]) -> Iterator[str]:
    size = bench.size
    if size.database:
        yield size.database
        return
    if size.server:
        os.environ["HOLDFAST_DSN"] = size.server
    with server(bench.folder, sized()) as running, running.fresh() as dsn:
        fill(dsn, Filled(size.entries, size.subjects))
        yield dsn


def _timed(
    bench: Bench[Sizes], requests: list[Query], run: Callable[[Query], int]
) -> dict[Query, list[Run]]:
    def once(query: Query) -> Run:
        began = time.perf_counter()
        size = run(query)
        return {"ms": (time.perf_counter() - began) * 1000, "bytes": size}

    by_name = {f"{each.kind} {' '.join(each.ask)}": each for each in requests}
    cases = {name: partial(once, each) for name, each in by_name.items()}
    runs = bench.rounds(cases, bench.size.rounds, warm=1, is_quiet=True)
    return {by_name[name]: each for name, each in runs.items()}


def _row(query: Query, runs: list[Run], processes: Mapping[Query, float]) -> dict[str, Any]:
    took = percentiles([run["ms"] for run in runs], 50, 95)
    row = {"": query.shows[:60], "median ms": took["p50"], "p95 ms": took["p95"]}
    row |= {f"under {BAR_MS:.0f}": "yes" if _is_within(runs) else "NO", "bytes": runs[-1]["bytes"]}
    return row | ({"with Python's start": processes[query]} if query in processes else {})


def _is_within(runs: list[Run]) -> bool:
    return percentiles([run["ms"] for run in runs], 50)["p50"] < BAR_MS


def _list(dsn: str, query: Query, *, process: bool = False) -> int:
    done = holdfast(*query.ask, dsn=dsn, process=process)
    if done.returncode not in query.ends:
        raise RuntimeError(f"{query.shows} ended with {done.returncode}: {done.stderr}")
    return len(done.stdout.encode())


def _asked_long(api: Served, path: str) -> dict[str, Any]:
    """Return what a read that has 30 s took, named as ended where that was not enough."""
    parameters = {"endpoint": "payouts"} if path.endswith("receipts") else {}
    began = time.perf_counter()
    status = api.program.get(path, params=parameters).status_code
    if status not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
        raise RuntimeError(f"{path} answered {status}")
    ended = " (ended: too much for one request)" if status != HTTPStatus.OK else ""
    return {"": f"{path}{ended}", "s": time.perf_counter() - began}


def _ms(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1000


def _counted(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        return {
            name: (
                connection.execute(f"SELECT count(*) FROM holdfast.{name}".encode()).fetchone()
                or (0,)
            )[0]
            for name in COUNTED
        }


if __name__ == "__main__":
    main("queries", Sizes, {"queries": queries}, about=__doc__ or "")
