"""What a decision and its delivery leave behind: bytes of tables and indexes, WAL, processor time.

Decisions with bodies of about 400 bytes are written by the sink in batches of several sizes, and
delivered by a real dispatcher to a receiver that counts. Each size has a database of its own. A
CHECKPOINT comes before each half, so that the first change of each page puts the whole page into
the WAL. `sizes` measures nothing: it is what the last figures come to at several rates.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import psycopg

from tests.benchmarks.common.processes import Peak
from tests.benchmarks.common.receiver import receiver
from tests.benchmarks.common.runner import Bench, main
from tests.benchmarks.common.server import Server, server, sized
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.cases import CASES, working

CONNECTIONS: Final = 64
SUBJECTS: Final = 5_000
DEADLINE_S: Final = 180.0
SINK: Final = ("entry", "entry_key", "subject", "transition", "batch")
DISPATCHER: Final = ("attempt", "lane", "lane_key")
KEPT_FOR_EVER: Final = ("entry_key", "batch", "subject", "transition")
RATES: Final = (1, 100, 2_000, 10_000)
"""Decisions a second, each delivered to one endpoint."""
DAY_S: Final = 86_400
WAL_SHARE: Final = 1.9
"""A checkpoint begins when the WAL since the last one reaches max_wal_size by this:
1 + checkpoint_completion_target."""

SIZE: Final = """
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
WHERE relkind = 'r' AND (oid = %(name)s::regclass
    OR oid IN (SELECT relid FROM pg_partition_tree(%(name)s::regclass)))
"""
IS_DELIVERED: Final = """
SELECT (SELECT count(*) = count(routed_at) FROM holdfast.batch)
    AND NOT EXISTS (SELECT FROM holdfast.lane WHERE delivered_sequence < last_sequence)
"""
WAL: Final = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
SESSIONS: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
WRITTEN, SENT = "A decision: bytes with indexes, WAL, processor time", "A delivery: the same"


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    decisions: int = 100_000
    batches: tuple[int, ...] = (10, 100, 1_000, 20_000)
    """Decisions of a batch."""
    retain_days: int = 30
    checkpoint_minutes: int = 15
    quick: ClassVar = {"decisions": 2_000, "batches": (10, 1_000)}


def measure(bench: Bench[Sizes]) -> None:
    """Each size of a batch once."""
    halves: dict[str, list[dict[str, Any]]] = {WRITTEN: [], SENT: []}
    with server(bench.folder, sized()) as running:
        for size in bench.size.batches:
            # A thousandth of the batches: enough for a mean.
            count = min(bench.size.decisions, size * 1000) // size * size
            for title, half in zip(halves, _measured(bench, running, size, count), strict=True):
                halves[title].append({"decisions of a batch": size, **half})
                bench.say(halves[title][-1])
    for title, rows in halves.items():
        bench.table(title, rows)


def _measured(
    bench: Bench[Sizes], running: Server, size: int, count: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    with running.fresh() as dsn:
        jobs.add_endpoint(dsn, CONNECTIONS)
        outbox = jobs.Outbox(dsn)
        # Subjects have their first decision in it: the rest is what each further one adds.
        outbox.write(range(SUBJECTS))
        with _half(running, dsn, SINK, count) as written:
            for first in range(0, count, size):
                outbox.write([number % SUBJECTS for number in range(first, first + size)])
        outbox.close()
        with receiver() as to, _half(running, dsn, DISPATCHER, count + SUBJECTS) as sent:
            with working(CASES["holdfast"], dsn, to, CONNECTIONS, bench.folder) as work:
                _await_delivered(dsn)
                client_s = work.used_s()
            arrived = to.figures()["distinct"]
    if arrived != count + SUBJECTS:
        raise RuntimeError(f"{count + SUBJECTS} decisions were written and {arrived} arrived")
    return written, sent | {"us of the dispatcher": client_s / arrived * 1e6}


@contextmanager
def _half(
    running: Server, dsn: str, tables: tuple[str, ...], count: int
) -> Iterator[dict[str, Any]]:
    """Yield what one half, the sink's or the dispatcher's, has cost each, after its end."""
    running.checkpoint()
    measured: dict[str, Any] = {}
    with (
        psycopg.connect(dsn, autocommit=True) as db,
        psycopg.connect(dsn, autocommit=True) as watched,
    ):
        names = {name: {"name": f"holdfast.{name}"} for name in tables}
        before = {name: _number(db, SIZE, given) for name, given in names.items()}
        wal, began, used = _number(db, WAL), time.monotonic(), running.used_s()
        # Without those of this benchmark's looks.
        with Peak(lambda: {"sessions": _number(watched, SESSIONS) - 1}, 0.2) as peak:
            yield measured
        seconds, used = time.monotonic() - began, running.used_s() - used
        wal = _number(db, WAL) - wal
        grown = {name: _number(db, SIZE, names[name]) - was for name, was in before.items()}
    measured |= {name: size / count for name, size in grown.items()}
    measured |= {"WAL": wal / count, "us of Postgres": used / count * 1e6}
    measured |= {"a second": count / seconds, "sessions": peak.most.get("sessions", 0)}


def _await_delivered(dsn: str) -> None:
    end = time.monotonic() + DEADLINE_S
    with psycopg.connect(dsn, autocommit=True) as db:
        while not _number(db, IS_DELIVERED):
            if time.monotonic() > end:
                raise RuntimeError(f"not all is delivered after {DEADLINE_S:g} s")
            time.sleep(0.2)


def _number(db: psycopg.Connection, text: str, parameters: Any = None) -> int:
    row = db.execute(text.encode(), parameters).fetchone()
    return int(row[0]) if row else 0


def sizes(bench: Bench[Sizes]) -> None:
    """What the footprint comes to at several rates: the table of docs/operators/capacity.

    The figures of a rate are those of the batch whose size is nearest to its decisions of a second.
    """
    written, sent = (
        {row["decisions of a batch"]: row for row in bench.found["tables"][title]["rows"]}
        for title in (WRITTEN, SENT)
    )
    days, minutes, rows = bench.size.retain_days, bench.size.checkpoint_minutes, []
    for rate in RATES:
        nearest = min(written, key=lambda size: abs(size - rate))
        decision, delivery = written[nearest], sent[nearest]
        day = rate * DAY_S * (decision["entry"] + delivery["attempt"])
        ever = rate * DAY_S * 365 * sum(decision[name] for name in KEPT_FOR_EVER)
        wal = rate * (decision["WAL"] + delivery["WAL"])
        cpu = rate * (decision["us of Postgres"] + delivery["us of Postgres"]) / 1e6
        rows.append(
            {
                "decisions/s": rate,
                "day, GB": day / 1e9,
                f"{days} days, GB": day * days / 1e9,
                "kept for ever, GB a year": ever / 1e9,
                "WAL, MB/s": wal / 1e6,
                "max_wal_size, GB": wal * minutes * 60 * WAL_SHARE / 1e9,
                "Postgres, cores": cpu,
                "dispatchers, cores": rate * delivery["us of the dispatcher"] / 1e6,
            }
        )
    bench.table("Decisions delivered to one endpoint", rows)


if __name__ == "__main__":
    main("footprint", Sizes, {"measure": measure, "sizes": sizes}, about=__doc__ or "")
