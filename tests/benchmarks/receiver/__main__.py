"""`make bench-receiver`: measure, print the table, write the report.

A benchmark is not a test: whatever the figures are, it ends with 0. A delivery that was lost or
counted twice has no figure, and ends it with 1.
"""

import argparse
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.receiver import Inbox
from tests.benchmarks.common.machine import git_commit, machine, versions
from tests.benchmarks.common.runs import ratios, spread
from tests.benchmarks.common.tables import table
from tests.benchmarks.receiver.cases import (
    ACT_TABLE,
    BARE_TABLE,
    DATABASE_CASES,
    LABELS,
    RATIOS,
    requests,
    verifications,
    verified,
)

REPORT = Path(".holdfast/bench/receiver.json")
BARS = {"verify": 20_000, "vs_bare_insert": 0.55}


def main() -> None:
    """Run all cases."""
    # As an exception, so that whatever was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = _options()
    began = time.monotonic()
    found: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "git_commit": git_commit(),
        "parameters": {"deliveries": given.deliveries, "rounds": given.rounds, "bars": BARS},
    }
    cases = _verify(given.deliveries, given.rounds)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, _server(folder) as dsn:
        with psycopg.connect(dsn) as connection:
            server = connection.info.parameter_status("server_version")
        found["versions"]["postgres"] = server
        cases |= _inbox(dsn, given.deliveries, given.rounds, given.piece)
    found |= {"cases": cases, "ratios": ratios(cases, RATIOS)}
    found["parameters"]["seconds"] = round(time.monotonic() - began)
    found["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(found, indent=2) + "\n")
    _show(found)


def _verify(deliveries: int, rounds: int) -> dict[str, Any]:
    rates = [deliveries / verifications(requests(deliveries, n)) for n in range(rounds + 1)]
    unit = "verifications per processor second"
    return {"verify": {**spread(rates[1:]), "unit": unit, "rounds": rounds}}  # the first warms up


def _inbox(dsn: str, deliveries: int, rounds: int, piece: int) -> dict[str, Any]:
    """Let the cases take turns every `piece` deliveries, so that each sees the same machine."""
    rates: dict[str, list[float]] = {name: [] for name in DATABASE_CASES}
    for number in range(rounds + 1):
        given = verified(requests(deliveries, number))
        gc.freeze()  # no service has thousands in hand for the collector to go through
        with _tables(dsn), ExitStack() as stack:
            runs = {name: stack.enter_context(case(dsn)) for name, case in DATABASE_CASES.items()}
            seconds = dict.fromkeys(DATABASE_CASES, 0.0)
            for start in range(0, deliveries, piece):
                part = given[start : start + piece]
                for name, run in runs.items():
                    # Each pair of cases has half of the pieces: a key is new once.
                    if name.endswith("_async") == bool(start // piece % 2):
                        seconds[name] += run(part)
            _check(dsn, deliveries)
        half = {name: _taken(deliveries, piece, odd=name.endswith("_async")) for name in seconds}
        for name, spent in seconds.items():
            if number:
                rates[name].append(half[name] / spent)
    return {
        name: {**spread(values), "unit": "deliveries/s", "rounds": rounds}
        for name, values in rates.items()
    }


def _taken(deliveries: int, piece: int, *, odd: bool) -> int:
    pieces = range(0, deliveries, piece)
    return sum(min(piece, deliveries - at) for at in pieces if bool(at // piece % 2) is odd)


@contextmanager
def _tables(dsn: str) -> Iterator[None]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(Inbox().ddl)
        connection.execute(BARE_TABLE)
        connection.execute(ACT_TABLE)
        connection.execute("CHECKPOINT")
        yield
        connection.execute("DROP SCHEMA payouts CASCADE")
        connection.execute("DROP TABLE bare_key, act")


def _check(dsn: str, deliveries: int) -> None:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM payouts.inbox WHERE outcome = 'applied'),"
            " (SELECT count(*) FROM payouts.inbox_subject), (SELECT count(*) FROM bare_key)"
        ).fetchone()
    if row != (deliveries,) * 3:
        raise RuntimeError(f"{deliveries} deliveries left {row} keys, fences and bare rows")


@contextmanager
def _server(folder: str) -> Iterator[str]:
    """Yield a database on HOLDFAST_DSN's server, or on an embedded one, which is removed."""
    given = os.environ.get("HOLDFAST_DSN")
    if given is None:
        with (
            EmbeddedPostgres(Path(folder) / "postgres", keep=False) as server,
            _database(server.dsn) as dsn,
        ):
            yield dsn
        return
    with _database(given) as dsn:
        yield dsn


@contextmanager
def _database(server: str) -> Iterator[str]:
    name = f"holdfast_bench_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield make_conninfo(server, dbname=name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _show(found: dict[str, Any]) -> None:
    print(
        table(
            "The receiving half, on one core and one connection",
            ("case", "", "rounds", "median", "min", "max"),
            [
                (
                    name,
                    LABELS[name],
                    str(case["rounds"]),
                    *(f"{case[key]:,.0f}" for key in ("median", "min", "max")),
                )
                for name, case in found["cases"].items()
            ],
        )
    )
    for name, ratio in found["ratios"].items():
        print(f"{name}: {ratio:.2f}")
    print(f"\nreport: {REPORT}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.receiver")
    parser.add_argument("--deliveries", type=int, default=4_000, help="in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--piece", type=int, default=200, help="deliveries before a case changes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
