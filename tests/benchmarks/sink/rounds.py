"""Runs the cases in turns, each in its own process and database."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.runs import Missing, last_line, spread
from tests.benchmarks.sink.cases import Case
from tests.benchmarks.sink.rows import write_batches
from tests.benchmarks.sink.server import Server
from tests.benchmarks.sink.sizes import Sizes
from tests.benchmarks.sink.stopwatch import SERVER_PID, Lap


@dataclass
class Rounds:
    """What the rounds found: runs by case, and why a case has none."""

    runs: dict[str, list[list[Lap]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def run_rounds(cases: Mapping[str, Case], sizes: Sizes, server: Server, folder: Path) -> Rounds:
    """Run each case once a round, in turn. Raises RuntimeError when one lost or made up a row."""
    count = sizes.warm + sizes.counted
    few, many = folder / "few", folder / "many"
    write_batches(few, count, sizes.rows, sizes.subjects)
    write_batches(many, count, sizes.rows, sizes.many_subjects)
    found = Rounds()
    with fresh(server.dsn) as template:
        for number in range(sizes.rounds):
            for name, case in cases.items():
                if name in found.missing:
                    continue
                try:
                    laps = _run(name, server, template, many if case.many_subjects else few)
                except Missing as reason:
                    found.missing[name] = str(reason)
                    print(f"  {name:<22}missing: {reason}", flush=True)
                    continue
                counted = laps[sizes.warm :]
                found.runs.setdefault(name, []).append(counted)
                rate = sizes.rows * len(counted) / sum(lap.seconds for lap in counted)
                print(f"  round {number + 1}  {name:<22}{rate:>10,.0f} rows/s", flush=True)
    return found


def figures(runs: list[list[Lap]], rows: int) -> dict[str, Any]:
    """The figures of one case over its rounds; a run's rate is over all of its counted batches."""
    return {
        **spread([rows * len(laps) / sum(lap.seconds for lap in laps) for laps in runs]),
        "unit": "rows/s",
        "rounds": len(runs),
        "batches": len(runs[0]),
        "cpu_s_per_million": spread(
            [sum(lap.cpu_s for lap in laps) / len(laps) / rows * 1e6 for laps in runs]
        ),
    }


def checkpoint(dsn: str) -> None:
    """Let each run begin with clean pages, where we may."""
    with (
        psycopg.connect(dsn, autocommit=True) as connection,
        suppress(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("CHECKPOINT")


def _run(name: str, server: Server, template: str, folder: Path) -> list[Lap]:
    command = [sys.executable, "-m", "tests.benchmarks.sink.one", name, str(folder)]
    with fresh(server.dsn, copy_of=template) as dsn:
        checkpoint(dsn)
        environment = {"HOLDFAST_DSN": dsn, SERVER_PID: str(server.pid or "")}
        return [Lap(*lap) for lap in last_line(command, environment)]
