"""The response time of every page, API read and list on an outbox with a busy day.

    python -m tests.benchmarks.queries (--server DSN | --database DSN) [--rounds N]

`--server` names a server on which a database is made, filled, and dropped; `--database` one that
was filled before, which gets a day's troubles where it has none. Each query is taken once without
being counted, then in turns with all others. Pages and reads are asked for over HTTP, one after the
other; lists run in this process, connecting each time, and once as a process of their own.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.filled import Filled, fill
from tests.benchmarks.common.machine import git_commit, machine, versions
from tests.benchmarks.common.processes import PeakRss
from tests.benchmarks.common.troubled import trouble
from tests.benchmarks.queries.covered import missed
from tests.benchmarks.queries.known import Known, known
from tests.benchmarks.queries.lists import lists
from tests.benchmarks.queries.pages import pages
from tests.benchmarks.queries.query import Query, Times, timed
from tests.benchmarks.queries.reads import LONG, reads
from tests.benchmarks.queries.report import shown
from tests.benchmarks.queries.server import Served, served
from tests.benchmarks.queries.taken import plans_of_all, redelivery
from tests.support.command import holdfast

ROUNDS = 9
REPORT = Path(".holdfast/bench/queries.json")
PACKAGES = ("fastapi", "uvicorn", "psycopg", "jinja2")


def main() -> None:
    """Fill a database if none is given, run every query, print and write what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", help="a server that databases may be made on")
    where.add_argument("--database", help="a database that was filled; it is changed")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--subjects", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    before = machine()
    with _database(given) as dsn:
        trouble(dsn)
        found = {**_measured(dsn, given.rounds), "outbox": _outbox(dsn)}
    report = {
        **found,
        "machine": before,
        "versions": {**versions(), **{each: version(each) for each in PACKAGES}},
        "commit": git_commit(),
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(shown(report))
    print(f"written to {REPORT}")


@contextmanager
def _database(given: argparse.Namespace) -> Iterator[str]:
    if given.database:
        yield given.database
        return
    with fresh(given.server) as dsn:
        fill(dsn, Filled(given.entries, given.subjects))
        yield dsn


def _measured(dsn: str, rounds: int) -> dict[str, Any]:
    there = known(dsn)
    asked = [*pages(there, redelivery(dsn, there)), *reads(there)]
    if left := missed(asked):
        raise RuntimeError(f"no query goes to {', '.join(left)}")
    plans = plans_of_all(dsn, could=False)
    with served(dsn) as server, PeakRss(server.pid) as peak:
        times = timed(asked, server.query, rounds)
        long = dict(_asked_long(server, each) for each in sorted(LONG))
    times |= _lists(dsn, there, rounds)
    long["holdfast check --since 24h"] = _seconds(lambda: _check(dsn))
    return {
        "queries": _rows(times),
        "seconds": long,
        "statements": sorted(plans.names),
        "read_whole": plans.whole,
        "server_peak_rss_bytes": peak.bytes,
    }


def _check(dsn: str) -> None:
    done = holdfast("check", "--since", "24h", dsn=dsn, process=True)
    if done.returncode:
        raise RuntimeError(f"holdfast check ended with {done.returncode}: {done.stdout[-2000:]}")


def _lists(dsn: str, there: Known, rounds: int) -> Mapping[Query, Times]:
    def run(query: Query, *, process: bool = False) -> int:
        done = holdfast(*query.ask, dsn=dsn, process=process)
        if done.returncode not in query.ends:
            raise RuntimeError(f"{query.shows} ended with {done.returncode}: {done.stderr}")
        return len(done.stdout.encode())

    asked = lists(there)
    times = timed(asked, run, rounds)
    for each in asked:
        times[each].process = 1000 * _seconds(lambda each=each: run(each, process=True))
    return times


def _asked_long(server: Served, path: str) -> tuple[str, float]:
    """Return what a read that has 30 s took, named as ended where that was not enough."""
    given = {"endpoint": "payouts"} if path.endswith("receipts") else {}
    began = time.perf_counter()
    status = server.program.get(path, params=given).status_code
    if status not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
        raise RuntimeError(f"{path} answered {status}")
    ended = " (ended: too much for one request)" if status != HTTPStatus.OK else ""
    return f"{path}{ended}", round(time.perf_counter() - began, 1)


def _rows(times: Mapping[Query, Times]) -> list[dict[str, Any]]:
    return [
        {"kind": each.kind, "shows": each.shows, "ask": list(each.ask), **took.shown()}
        for each, took in times.items()
    ]


def _seconds(do: Any) -> float:
    began = time.perf_counter()
    do()
    return round(time.perf_counter() - began, 3)


def _outbox(dsn: str) -> dict[str, int]:
    counted = ("entry", "attempt", "lane", "dead_letter", "quarantine", "operator_action", "replay")
    with psycopg.connect(dsn) as connection:
        return {
            name: (
                connection.execute(f"SELECT count(*) FROM holdfast.{name}".encode()).fetchone()
                or (0,)
            )[0]
            for name in (*counted, "replay_item", "endpoint")
        }


if __name__ == "__main__":
    main()
