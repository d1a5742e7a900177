"""What a dispatcher costs while nothing happens, and while ten decisions a second are delivered.

Each case has a database and a process of its own, in turns. Transactions are those of the server's
own count, less the sink's. A lost or doubled delivery ends it with 1.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import psycopg

from tests.benchmarks.common.receiver import receiver
from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.common.trees import Tree
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.cases import CASES, Case, working
from tests.support.waiting import eventually

CONNECTIONS: Final = 64
SETTLING_S: Final = 5.0
"""From the start until pauses are at their longest."""
TRANSACTIONS: Final = (
    "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
)
"""The server counts those of a session about once a second."""
PAUSE_S: Final = 0.1
"""Between two decisions."""
OF_THE_SINK: Final = 2
"""Transactions of a decision: the batch, and the doorbell."""


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    rounds: int = 3
    idle_s: int = 60
    decisions: int = 300
    quick: ClassVar = {"rounds": 1, "idle_s": 10, "decisions": 50}


def idle(bench: Bench[Sizes]) -> None:
    """With the doorbell, and without it."""
    cases = {name: partial(_run, bench, CASES[name]) for name in ("holdfast", "holdfast_polling")}
    bench.compare(
        "A dispatcher, idle and at ten decisions a second",
        bench.with_base(cases),
        bench.size.rounds,
        by="idle: transactions a minute",
    )


def _run(bench: Bench[Sizes], case: Case, tree: Tree) -> Run:
    size, row = bench.size, {}
    with bench.server.fresh() as dsn, receiver() as to, psycopg.connect(dsn, autocommit=True) as db:
        jobs.add_endpoint(dsn, CONNECTIONS)
        outbox = jobs.Outbox(dsn)
        outbox.write([0])
        with working(case, dsn, to, CONNECTIONS, bench.folder, tree) as work:
            eventually(lambda: to.figures()["distinct"] == 1)
            time.sleep(SETTLING_S)
            began, used, count = time.monotonic(), work.used_s(), _transactions(db)
            time.sleep(size.idle_s)
            seconds = time.monotonic() - began
            row["idle: transactions a minute"] = (_transactions(db) - count) / seconds * 60
            row["idle: % of a core"] = (work.used_s() - used) / seconds * 100
            began, used, count = time.monotonic(), work.used_s(), _transactions(db)
            for number in range(size.decisions):
                outbox.write([number])
                time.sleep(max(0.0, began + (number + 1) * PAUSE_S - time.monotonic()))
            seconds = time.monotonic() - began
            all_ = _transactions(db) - count
            row["each webhook: transactions"] = all_ / size.decisions - OF_THE_SINK
            row["at 10/s: % of a core"] = (work.used_s() - used) / seconds * 100
            eventually(lambda: to.figures()["distinct"] == size.decisions + 1)
        outbox.close()
        arrived = to.figures()
    if arrived["requests"] != size.decisions + 1:
        raise RuntimeError(f"lost or doubled: {arrived}")
    return row


def _transactions(db: psycopg.Connection) -> int:
    row = db.execute(TRANSACTIONS).fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    main("idle", Sizes, {"idle": idle}, about=__doc__ or "")
