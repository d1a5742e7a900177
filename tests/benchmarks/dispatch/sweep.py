"""`python -m tests.benchmarks.dispatch.sweep`: finds the settings with which each peer is fastest.

Each peer runs with every setting of its grid, in the main shape, and the table shows all of them.
The fastest one is what `make bench-dispatch` uses, from the file that this writes.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any, Final

from tests.benchmarks.common.runner import Bench, machine, main
from tests.benchmarks.common.trees import HERE
from tests.benchmarks.dispatch import installed, jobs
from tests.benchmarks.dispatch.__main__ import Shape, Sizes
from tests.benchmarks.dispatch.cases import CASES, SWEPT

_BATCHES: Final = [{"batch": batch} for batch in (64, 250, 500)]
_PG_BOSS: Final = [
    {"batch": batch, "workers": workers}
    for batch, workers in ((50, 8), (100, 4), (250, 2), (500, 2), (1_000, 1), (2_000, 1))
]
_GRAPHILE: Final = [
    {"size": size, "refetch_ms": pause} for size, pause in product((100, 500, 1_000), (0, 10))
]
GRIDS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "graphile_queues": _GRAPHILE,
    "pgboss_fifo": _PG_BOSS,
    "graphile": _GRAPHILE,
    "pgboss": _PG_BOSS,
    "pgqueuer": _BATCHES,
    "naive_aiohttp": _BATCHES,
}
"""Not procrastinate's: it is twenty times slower than any of these, and no setting changes that."""


def sweep(name: str, bench: Bench[Sizes]) -> None:
    """Run the grid of a peer, and keep the best."""
    size, folder = bench.size, bench.folder / name
    folder.mkdir()
    subjects = jobs.shuffled(size.jobs, size.subjects)
    shape = Shape(bench, folder, subjects, ours=100, theirs=1)
    tried = {
        json.dumps(settings): partial(shape.run, replace(CASES[name], settings=settings), HERE)
        for settings in GRIDS[name]
    }
    title = f"Deliveries a second: {name}"
    bench.compare(title, tried, size.rounds, by="deliveries/s")
    rates = {
        row["case"]: round(row["deliveries/s"]["median"])
        for row in bench.found["tables"].get(title, {"rows": ()})["rows"]
    }
    if rates:
        swept = json.loads(SWEPT.read_text())
        best = json.loads(max(rates, key=rates.__getitem__))
        swept["cases"][name] = {"best": best, "deliveries_per_second": rates}
        swept |= {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": {key: machine()[key] for key in ("cpus", "model")},
            "versions": installed.versions(),
        }
        SWEPT.write_text(json.dumps(swept, indent=1) + "\n")


if __name__ == "__main__":
    main(
        "dispatch.sweep", Sizes, {name: partial(sweep, name) for name in GRIDS}, about=__doc__ or ""
    )
