"""`python -m tests.benchmarks.dispatch.sweep`: finds the settings with which each peer is fastest.

Each peer runs with every setting of its grid, in the main shape, and the table shows all of them.
The fastest one is what `make bench-dispatch` uses, from the file that this writes.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.common.machine import machine
from tests.benchmarks.common.tables import table
from tests.benchmarks.dispatch import peers_installed, rounds
from tests.benchmarks.dispatch.cases import CASES, SWEPT
from tests.benchmarks.dispatch.sizes import Sizes
from tests.benchmarks.sink.server import server


def _grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


_PG_BOSS: Final = [
    {"batch": batch, "workers": workers}
    for batch, workers in ((50, 8), (100, 4), (250, 2), (500, 2), (1_000, 1), (2_000, 1))
]
_GRAPHILE: Final = _grid(size=(100, 500, 1_000), refetch_ms=(0, 10))

GRIDS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "graphile_queues": _GRAPHILE,
    "pgboss_fifo": _PG_BOSS,
    "graphile": _GRAPHILE,
    "pgboss": _PG_BOSS,
    "pgqueuer": _grid(batch=(64, 250, 500)),
    "naive_aiohttp": _grid(batch=(64, 250, 500)),
}
"""Not procrastinate's: it is twenty times slower than any of these, and no setting changes that."""


def main() -> None:
    """Run the grids that were asked for, and keep the best of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dispatch.sweep")
    parser.add_argument("--cases", default=",".join(GRIDS), help="of those with a grid")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each setting")
    given = parser.parse_args()
    sizes, found = Sizes.full(), json.loads(SWEPT.read_text())
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-sweep-") as folder,
        server(Path(folder)) as running,
    ):
        for name in given.cases.split(","):
            tried = {
                json.dumps(settings): replace(CASES[name], settings=settings)
                for settings in GRIDS[name]
            }
            runs = rounds.measure(
                tried, "shuffled", sizes, running, count=sizes.jobs, rounds=given.rounds
            ).runs
            if runs:
                rates = {
                    text: round(rounds.figures(each, sizes.jobs)["median"])
                    for text, each in runs.items()
                }
                best = max(rates, key=rates.__getitem__)
                found["cases"][name] = {"best": json.loads(best), "deliveries_per_second": rates}
                found |= {
                    "date": f"{datetime.now(UTC):%Y-%m-%d}",
                    "machine": {key: machine()[key] for key in ("cpus", "model")},
                    "versions": peers_installed.versions(),
                }
                SWEPT.write_text(json.dumps(found, indent=1) + "\n")
    rows = [
        (name, settings, f"{rate:,}", "best" if json.loads(settings) == case["best"] else "")
        for name, case in found["cases"].items()
        for settings, rate in case["deliveries_per_second"].items()
    ]
    print(table("Deliveries a second, settled", ("case", "settings", "median", ""), rows))


if __name__ == "__main__":
    main()
