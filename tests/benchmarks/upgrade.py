"""Unit costs of an upgrade: what `holdfast db upgrade --plan` estimates with.

Each statement runs in a transaction that is rolled back, on the table of entries and on that of
lanes, whose rows are wide and narrow. The dearer one of the two is the unit cost.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import psycopg

from tests.benchmarks.common.filled import WAITING, Filled, fill
from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.dispatch.jobs import add_endpoint

SIZE: Final = """
SELECT sum(greatest(reltuples, 0))::bigint / 1e6, sum(pg_table_size(oid)) / 1e6,
    sum(pg_total_relation_size(oid)) / 1e6
FROM pg_class WHERE relkind = 'r' AND (
    oid = %(name)s::regclass OR oid IN (SELECT relid FROM pg_partition_tree(%(name)s::regclass))
)
"""
PARTS: Final = {
    "catalogue_ms": ("ALTER TABLE {} ADD COLUMN noted text", None),
    "read_ms_per_mb": ("ALTER TABLE {} ADD CONSTRAINT ck_some CHECK (subject_id > -1)", 1),
    "index_ms_per_million_rows": ("CREATE INDEX ON {} (subject_id, priority)", 0),
    "change_ms_per_mb": ("UPDATE {} SET priority = priority + 1", 2),
    "rewrite_ms_per_mb": (
        "ALTER TABLE {} ADD COLUMN noted timestamptz DEFAULT clock_timestamp()",
        2,
    ),
}
"""A statement for each unit cost, and by which column of SIZE its time is divided."""


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    entries: int = 1_000_000
    rounds: int = 3
    quick: ClassVar = {"entries": 20_000, "rounds": 1}


def upgrade(bench: Bench[Sizes]) -> None:
    """The statements, in turns; the tables are in memory."""
    with bench.server.fresh() as dsn:
        add_endpoint(dsn, 64)
        fill(dsn, Filled(bench.size.entries, bench.size.entries // 4), WAITING)
        with psycopg.connect(dsn) as db:
            names = {name: f"holdfast.{name}" for name in ("entry", "lane")}
            sizes = {
                name: db.execute(SIZE, {"name": table}).fetchone() or (0, 0, 0)
                for name, table in names.items()
            }
            db.rollback()
            cases = {
                f"{part}, {name}": partial(_lap, db, text.format(names[name]), sizes[name], by)
                for part, (text, by) in PARTS.items()
                for name in names
            }
            runs = bench.rounds(cases, bench.size.rounds, warm=1)
    costs = {name: sorted(run["cost"] for run in each) for name, each in runs.items()}
    middle = {name: each[len(each) // 2] for name, each in costs.items()}
    rows = [{"": part, **{name: middle[f"{part}, {name}"] for name in names}} for part in PARTS]
    texts = (f"{n}: {size[0]:.2f}, {size[2]:.0f}" for n, size in sizes.items())
    bench.table(
        f"Upgrade; million rows and MB of {', of '.join(texts)}",
        [{**row, "unit cost": max(row[name] for name in names)} for row in rows],
    )


def _lap(db: psycopg.Connection, text: str, size: tuple[float, ...], by: int | None) -> Run:
    """Return the milliseconds of a statement that is rolled back, by what it depends on."""
    began = time.perf_counter()
    db.execute(text.encode())
    took = (time.perf_counter() - began) * 1000
    db.rollback()
    return {"cost": took if by is None else took / float(size[by])}


if __name__ == "__main__":
    main("upgrade", Sizes, {"upgrade": upgrade}, about=__doc__ or "")
