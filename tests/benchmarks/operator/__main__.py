"""`make bench-operator`: the exposure operator against Spark's own, its checkpoints, its state.

After `--only sweep,state,restore`, `python -m tests.benchmarks.operator.recovery` writes the page
docs/spark/recovery-time.md.
"""

import statistics
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.common.trees import HERE, Tree
from tests.benchmarks.operator import recovery, restore, state, sweep
from tests.benchmarks.operator.cases import Input, disagreements
from tests.benchmarks.operator.events import Shape, write

FILES = 10
RATIOS = {
    "vs_builtin": ("ours", "builtin"),
    "vs_textbook": ("ours", "textbook"),
    "vs_textbook_same_input": ("ours_small", "textbook"),
}


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents: about an hour."""

    rounds: int = 3
    per_file: int = 500_000
    """Events of each of ten files that this operator and the built-in one read, one a batch."""
    merchants: int = 200_000
    textbook_per_file: int = 40_000
    """A state per merchant is too slow for all of it: fewer events, and fewer merchants alike."""
    textbook_merchants: int = 16_000
    warm: int = 100_000
    """Events of each of four files before those that count."""
    intervals: tuple[float, ...] = (0.5, 2.0, 10.0, 30.0, 60.0, 120.0)
    batches: tuple[int, ...] = (64, 48, 16, 8, 5, 4)
    """Measured of each interval."""
    events_per_second: int = 4_000
    sweep_merchants: int = 5_000
    state_files: tuple[int, ...] = (2, 4, 8)
    """Files of one window after which the state is looked at."""
    restore_files: tuple[int, ...] = (1, 10, 40)
    """Files of one window that a job has in its state when it is killed."""
    restore_per_file: int = 100_000
    restore_merchants: int = 200_000
    quick: ClassVar = (
        {"rounds": 1, "per_file": 20_000, "merchants": 8_000, "textbook_per_file": 2_000}
        | {"textbook_merchants": 800, "warm": 5_000, "intervals": (0.5, 2.0, 10.0)}
        | {"batches": (3, 3, 2), "events_per_second": 400, "sweep_merchants": 200}
        | {"state_files": (1, 2, 4), "restore_files": (1, 3), "restore_per_file": 2_000}
        | {"restore_merchants": 500}
    )


def throughput(bench: Bench[Sizes]) -> None:
    """Events a second of the job's own query and of Spark's, which must find the same windows."""
    size, inputs = bench.size, {}
    for name, shape in {
        "warm": Shape(4, size.warm, 20_000, file_s=600, seed=1),
        "events": Shape(FILES, size.per_file, size.merchants),
        "small": Shape(FILES, size.textbook_per_file, size.textbook_merchants),
    }.items():
        write(bench.folder / name, shape)
        inputs[name] = asdict(Input(str(bench.folder / name)))

    def run(query: str, events: str, tree: Tree) -> Run:
        words = (query, inputs["warm"], inputs[events])
        result: Run = tree.call("tests.benchmarks.operator.cases:run", *words)
        return result

    ours = {"ours": partial(run, "job", "events"), "ours_small": partial(run, "job", "small")}
    runs = bench.compare(
        "Events a second, from the start of the query to its end",
        {
            **bench.with_base(ours),
            "builtin": partial(run, "aggregate", "events", HERE),
            # On the same small input as ours_small, so that both ways can be looked at.
            "textbook": partial(run, "textbook", "small", HERE),
        },
        size.rounds,
        by="events/s",
        ratios=RATIOS,
    )
    bench.found["missing"] |= disagreements(runs)
    if "ours" in runs:
        bench.ratio("close_vs_median", [_closing(each, size.merchants) for each in runs["ours"]])


def _closing(run: Run, merchants: int) -> float:
    """How much longer than the median batch that took in which the windows of all are emitted."""
    full = [batch for batch in run["_batches"] if batch["rows"]]
    closing = [batch["ms"] for batch in full if batch["emitted"] >= merchants]
    return max(closing, default=0) / statistics.median(batch["ms"] for batch in full)


def _shown(part: Any, name: str, bench: Bench[Sizes]) -> None:
    part.measure(bench)
    bench.found.setdefault("commits", {})[name] = bench.found["git_commit"]
    for title, rows in recovery.tables(bench.found).items():
        if title == name:
            bench.table(title, rows)


PARTS = {
    "throughput": throughput,
    **{
        name: partial(_shown, part, name)
        for name, part in {"sweep": sweep, "state": state, "restore": restore}.items()
    },
}

if __name__ == "__main__":
    main("operator", Sizes, PARTS, about=__doc__ or "")
