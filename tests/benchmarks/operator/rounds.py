"""Runs the cases in turns, each in its own process, so that a busy minute affects all."""

import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.common.runs import last_line, spread


@dataclass(frozen=True, slots=True)
class Case:
    """One column of the comparison: a program (`ours`, `builtin`, `textbook`) and what it reads."""

    program: str
    events: Path
    warm: Path
    rounds: int


def run_rounds(cases: dict[str, Case]) -> dict[str, list[dict[str, Any]]]:
    """Run each case once a round, in turn; results by case, in order of the rounds."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for number in range(max(case.rounds for case in cases.values())):
        for name, case in cases.items():
            if number < case.rounds:
                result = run_once(case)
                results[name].append(result)
                print(
                    f"  round {number + 1}  {name:<15}{result['rate']:>10,.0f} events/s"
                    f"{result['seconds']:>8.1f} s{result['cpu_s']:>8.1f} s of processor",
                    flush=True,
                )
    return results


def run_once(case: Case) -> dict[str, Any]:
    """Run one case in a process of its own; raises RuntimeError with its last words."""
    words = ["-m", "tests.benchmarks.operator.one", case.program]
    result: dict[str, Any] = last_line([sys.executable, *words, str(case.events), str(case.warm)])
    return result


def disagreements(results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What runs over the same files found differently, and what Spark dropped as late."""
    found = []
    first: dict[int, tuple[str, dict[str, int]]] = {}
    for name, runs in results.items():
        for run in runs:
            other, answer = first.setdefault(run["events"], (name, run["answer"]))
            if answer != run["answer"]:
                found.append(f"{name} found {run['answer']}, {other} {answer}")
            if run["dropped"]:
                found.append(f"Spark dropped {run['dropped']} rows of {name} as late")
    return sorted(set(found))


def figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one case over its rounds."""
    return {
        **spread([run["rate"] for run in runs]),
        "unit": "events/s",
        "rounds": len(runs),
        "events": runs[0]["events"],
        "cpu_s_per_million": spread([run["cpu_s"] / run["events"] * 1e6 for run in runs]),
        "batch_ms": [spread(column) for column in _by_batch(runs)],
        "batch_rows": [batch["rows"] for batch in runs[0]["batches"]],
        "batch_emitted": [batch["emitted"] for batch in runs[0]["batches"]],
    }


def closing(runs: list[dict[str, Any]], merchants: int) -> dict[str, float]:
    """How much longer than the median batch the closing one, and the slowest one, took.

    The closing batch is that in which the windows of all merchants are emitted; medians of rounds.
    """
    close, slowest = [], []
    for run in runs:
        full = [batch for batch in run["batches"] if batch["rows"]]
        median = statistics.median(batch["ms"] for batch in full)
        close += [batch["ms"] / median for batch in full if batch["emitted"] >= merchants]
        slowest.append(max(batch["ms"] for batch in full) / median)
    return {
        "close_vs_median": statistics.median(close) if close else 0.0,
        "slowest_vs_median": statistics.median(slowest),
    }


def _by_batch(runs: list[dict[str, Any]]) -> list[list[float]]:
    columns = zip(*([batch["ms"] for batch in run["batches"]] for run in runs), strict=False)
    return [list(column) for column in columns]
