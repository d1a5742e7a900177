"""What a decision and its delivery leave behind: bytes of tables and indexes, WAL, processor time.

    python -m tests.benchmarks.footprint [--decisions N] [--batches SIZES]

Decisions with bodies of about 400 bytes are written by the sink in batches of several sizes, and
delivered by a real dispatcher to a receiver that counts. Each size has a database of its own, and
the server the settings of `tests.benchmarks.sink.server.sized`. A CHECKPOINT comes before each
half, so that the first change of each page puts the whole page into the WAL.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import psycopg

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.machine import git_commit, machine
from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.tables import table
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.cases import CASES
from tests.benchmarks.dispatch.programs import receiver, working
from tests.benchmarks.sink.rounds import checkpoint
from tests.benchmarks.sink.server import Server, server, sized, version

REPORT: Final = Path(".holdfast/bench/footprint.json")
CONNECTIONS: Final = 64
SUBJECTS: Final = 5_000
DEADLINE_S: Final = 180.0
SINK: Final = ("entry", "entry_key", "subject", "transition", "batch")
DISPATCHER: Final = ("attempt", "lane", "lane_key")

_SIZE: Final = """
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
WHERE relkind = 'r' AND (oid = %(name)s::regclass
    OR oid IN (SELECT relid FROM pg_partition_tree(%(name)s::regclass)))
"""
_LEFT: Final = "SELECT count(*) FROM holdfast.lane WHERE delivered_sequence < last_sequence"
_ROUTED: Final = "SELECT count(*) = count(routed_at) FROM holdfast.batch"
_WAL: Final = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_SESSIONS: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


@dataclass
class Half:
    """What one half, the sink's or the dispatcher's, has cost."""

    tables: dict[str, int] = field(default_factory=dict)
    wal: int = 0
    server_s: float = 0.0
    seconds: float = 0.0
    sessions: int = 0


def main() -> None:
    """Measure each size of a batch."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.footprint")
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--batches", default="10,100,1000,20000", help="decisions of a batch")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        server(Path(folder), sized()) as running,
    ):
        for size in map(int, given.batches.split(",")):
            # A thousandth of the batches: enough for a mean.
            count = min(given.decisions, size * 1000) // size * size
            found[str(size)] = _measured(running, size, count, Path(folder))
        about = {"git_commit": git_commit(), "machine": machine(), "postgres": version(running.dsn)}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({**about, "batches": found}, indent=2) + os.linesep)
    _show(found)


def _measured(running: Server, size: int, count: int, folder: Path) -> dict[str, Any]:
    """Return bytes, processor microseconds and seconds for a decision, and for its delivery."""
    with fresh(running.dsn) as dsn:
        jobs.add_endpoint(dsn, CONNECTIONS)
        outbox = jobs.Outbox(dsn)
        # Subjects have their first decision in it: the rest is what each further one adds.
        outbox.write(range(SUBJECTS))
        checkpoint(running.dsn)
        with _half(running, dsn, SINK) as written:
            for first in range(0, count, size):
                outbox.write([number % SUBJECTS for number in range(first, first + size)])
        outbox.close()
        checkpoint(running.dsn)
        with receiver() as to, _half(running, dsn, DISPATCHER) as sent:
            with working(CASES["holdfast"], dsn, to, CONNECTIONS, folder) as work:
                _await_delivered(dsn)
                client_s = work.used_s()
            arrived = to.figures()["distinct"]
    if arrived != count + SUBJECTS:
        raise RuntimeError(f"{count + SUBJECTS} decisions were written and {arrived} arrived")
    return {
        "decisions": count,
        "written": _each(written, count),
        "sent": _each(sent, arrived) | {"client_us": client_s / arrived * 1e6},
    }


def _each(half: Half, count: int) -> dict[str, Any]:
    return {
        "tables": {name: size / count for name, size in half.tables.items()},
        "wal": half.wal / count,
        "server_us": half.server_s / count * 1e6,
        "per_second": count / half.seconds,
        "sessions": half.sessions,
    }


@contextmanager
def _half(running: Server, dsn: str, tables: tuple[str, ...]) -> Iterator[Half]:
    half, over = Half(), Event()
    with psycopg.connect(dsn, autocommit=True) as db:
        before = _tables(db, tables)
        wal, began = _number(db, _WAL), time.monotonic()
        processor = processor_seconds(running.pid) if running.pid else 0.0
        watching = Thread(target=_watch, args=(dsn, half, over))
        watching.start()
        try:
            yield half
        finally:
            half.seconds = time.monotonic() - began
            over.set()
            watching.join()
        half.wal = _number(db, _WAL) - wal
        if running.pid:
            half.server_s = processor_seconds(running.pid) - processor
        half.tables = {name: size - before[name] for name, size in _tables(db, tables).items()}


def _watch(dsn: str, half: Half, over: Event) -> None:
    """Remember how many sessions the half had at most, without those of this benchmark's looks."""
    with psycopg.connect(dsn, autocommit=True) as db:
        while not over.wait(0.2):
            half.sessions = max(half.sessions, _number(db, _SESSIONS) - 1)


def _await_delivered(dsn: str) -> None:
    end = time.monotonic() + DEADLINE_S
    with psycopg.connect(dsn, autocommit=True) as db:
        while not _number(db, _ROUTED) or _number(db, _LEFT):
            if time.monotonic() > end:
                raise RuntimeError(f"after {DEADLINE_S:g} s {_number(db, _LEFT)} lanes wait")
            time.sleep(0.2)


def _tables(db: psycopg.Connection, names: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for name in names:
        row = db.execute(_SIZE, {"name": f"holdfast.{name}"}).fetchone()
        found[name] = int(row[0]) if row else 0
    return found


def _number(db: psycopg.Connection, text: str) -> int:
    row = db.execute(text.encode()).fetchone()
    return int(row[0]) if row else 0


def _show(found: dict[str, Any]) -> None:
    for part, what in (("written", "A decision"), ("sent", "A delivery")):
        names = list(next(iter(found.values()))[part]["tables"])
        head = ("decisions of a batch", *names, "WAL", "us of Postgres", "a second", "sessions")
        lines = []
        for size, each in found.items():
            half = each[part]
            lines.append(
                (
                    f"{int(size):,}",
                    *(f"{half['tables'][name]:,.0f}" for name in names),
                    f"{half['wal']:,.0f}",
                    f"{half['server_us']:,.0f}",
                    f"{half['per_second']:,.0f}",
                    str(half["sessions"]),
                )
            )
        print(table(f"{what}: bytes with indexes, WAL, processor time", head, lines))
    print(f"\nreport: {REPORT}")


if __name__ == "__main__":
    main()
