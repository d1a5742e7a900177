"""Unit costs of an upgrade: what `holdfast db upgrade --plan` estimates with.

    python -m tests.benchmarks.upgrade [--server DSN] [--entries N] [--rounds N]

Each statement runs in a transaction that is rolled back, on the table of entries and on that of
lanes, whose rows are wide and narrow. The dearer one of the two is the unit cost.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.machine import machine
from tests.benchmarks.common.tables import table
from tests.benchmarks.dispatch.waiting import fill
from tests.benchmarks.sink.server import Server, server, version

REPORT: Final = Path(".holdfast/bench/upgrade.json")
CONNECTIONS: Final = 64

_SIZE: Final = """
SELECT sum(greatest(reltuples, 0))::bigint / 1e6, sum(pg_table_size(oid)) / 1e6,
    sum(pg_total_relation_size(oid)) / 1e6
FROM pg_class WHERE relkind = 'r' AND (
    oid = %(name)s::regclass OR oid IN (SELECT relid FROM pg_partition_tree(%(name)s::regclass))
)
"""
_PARTS: Final = {
    "catalogue_ms": ("ALTER TABLE {} ADD COLUMN noted text", None),
    "read_ms_per_mb": ("ALTER TABLE {} ADD CONSTRAINT ck_some CHECK (subject_id > -1)", "bytes"),
    "index_ms_per_million_rows": ("CREATE INDEX ON {} (subject_id, priority)", "rows"),
    "change_ms_per_mb": ("UPDATE {} SET priority = priority + 1", "total_bytes"),
    "rewrite_ms_per_mb": (
        "ALTER TABLE {} ADD COLUMN noted timestamptz DEFAULT clock_timestamp()",
        "total_bytes",
    ),
}
"""A statement for each unit cost, and by what its time is divided."""


def main() -> None:
    """Fill a database, time the statements, print the unit costs."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.upgrade")
    parser.add_argument("--server", help="a server that databases may be made on")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        own = nullcontext(Server(given.server, None)) if given.server else server(Path(folder))
        with own as running, fresh(running.dsn) as dsn:
            fill(dsn, given.entries, CONNECTIONS)
            found = {name: _measured(dsn, name, given.rounds) for name in ("entry", "lane")}
            report: dict[str, Any] = {
                "postgres": version(running.dsn),
                "machine": machine(),
                "tables": found,
                "unit_costs": {p: max(each[p] for each in found.values()) for p in _PARTS},
            }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + os.linesep)
    _show(report)


def _measured(dsn: str, name: str, rounds: int) -> dict[str, float]:
    with psycopg.connect(dsn) as db:
        rows, size, total = db.execute(_SIZE, {"name": f"holdfast.{name}"}).fetchone() or (0, 0, 0)
        by = {"rows": float(rows), "bytes": float(size), "total_bytes": float(total)}
        found: dict[str, float] = {"million_rows": by["rows"], "mb": by["total_bytes"]}
        for part, (text, unit) in _PARTS.items():
            laps = [_lap(db, text.format(f"holdfast.{name}")) for _ in range(rounds + 1)][1:]
            found[part] = statistics.median(laps) / (by[unit] if unit else 1)
    return found


def _lap(db: psycopg.Connection, text: str) -> float:
    """Return the milliseconds of a statement that is rolled back."""
    began = time.perf_counter()
    db.execute(text.encode())
    took = (time.perf_counter() - began) * 1000
    db.rollback()
    return took


def _show(report: dict[str, Any]) -> None:
    found = report["tables"]
    head = ("", *(f"{n}, {t['million_rows']:.2f} M rows" for n, t in found.items()), "unit cost")
    lines = [
        (part, *(f"{t[part]:,.2f}" for t in found.values()), f"{report['unit_costs'][part]:,.2f}")
        for part in _PARTS
    ]
    print(table(f"Upgrade, Postgres {report['postgres']}", head, lines))
    print(f"\nreport: {REPORT}")


if __name__ == "__main__":
    main()
