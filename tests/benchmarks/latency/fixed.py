"""The fixed cost of a batch: the job, and Spark's own operators beside it, in turns."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.spark_app.operator.groups import STATE_PARTITIONS
from tests.benchmarks.common.runs import last_line
from tests.benchmarks.latency.inputs import write_files
from tests.benchmarks.latency.phases import BETWEEN, TRIGGER, SinkTimes, summarize
from tests.benchmarks.latency.programs import Programs
from tests.benchmarks.latency.sizes import Sizes
from tests.benchmarks.operator import job
from tests.benchmarks.operator.database import database

JOB, FLOOR, PLAIN = "job", "floor", "spark_defaults"

ROWS, EMPTY = "rows", "empty"

Summary = dict[str, dict[str, float]]
"""Median and 95th percentile of each phase, in milliseconds."""


def measure(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Run each case in turn; medians of the rounds, and the programs that each starts a batch."""
    found: dict[str, dict[str, list[Summary]]] = {}
    for number in range(sizes.rounds):
        for name, run in _CASES.items():
            place = folder / f"{name}-{number}"
            for kind, summary in _split(*run(place, sizes, None), sizes).items():
                found.setdefault(name, {}).setdefault(kind, []).append(summary)
                print(
                    f"  round {number + 1}  {name:<15}{kind:<6}{_period(summary):>7.0f} ms a batch",
                    flush=True,
                )
    cases: dict[str, Any] = {
        name: {kind: _median(rounds) for kind, rounds in kinds.items()}
        for name, kinds in found.items()
    }
    for name, run in _CASES.items():
        cases[name]["programs"] = _programs(folder / f"{name}-programs", sizes, run)
    return {
        "partitions": STATE_PARTITIONS,
        "cases": cases,
        "ratios": {
            f"vs_{other}_{kind}": _period(cases[JOB][kind]) / _period(cases[other][kind])
            for other in (FLOOR, PLAIN)
            for kind in (ROWS, EMPTY)
        },
    }


def _period(summary: Summary) -> float:
    """From the start of a batch to that of the next, which begins at once."""
    return summary[TRIGGER]["median"] + summary[BETWEEN]["median"]


Reports = list[dict[str, Any]]
_Case = Callable[[Path, Sizes, dict[str, str] | None], tuple[Reports, dict[int, SinkTimes] | None]]


def _split(reports: Reports, sunk: dict[int, SinkTimes] | None, sizes: Sizes) -> dict[str, Summary]:
    """Summarize the measured batches with rows, and those without."""
    filled = sizes.warm + sizes.batches
    return {
        ROWS: summarize(reports[sizes.warm : filled], sunk),
        EMPTY: summarize(reports[filled : filled + sizes.batches], sunk),
    }


def _median(rounds: list[Summary]) -> Summary:
    """The round whose batches took the middle time: its phases add up."""
    return sorted(rounds, key=_period)[len(rounds) // 2]


def _job(
    folder: Path, sizes: Sizes, environment: dict[str, str] | None
) -> tuple[Reports, dict[int, SinkTimes] | None]:
    folder.mkdir(parents=True)
    write_files(folder / "events", sizes)
    count = sizes.warm + 2 * sizes.batches
    with (
        database(folder) as dsn,
        job.job(
            folder,
            dsn,
            "bench",
            options=sizes.job_options,
            program="tests.benchmarks.latency.timed",
            environment=environment,
        ) as running,
    ):
        running.until(lambda: len(running.batches) >= count)
        notes = running.noted()
    reports = [each["progress"] for each in notes if each["what"] == "batch"]
    sunk = {
        each["batch"]: SinkTimes(each["call"], each["write"])
        for each in notes
        if each["what"] == "sunk"
    }
    return reports, sunk


def _of(settings: str) -> _Case:
    def run(
        folder: Path, sizes: Sizes, environment: dict[str, str] | None
    ) -> tuple[Reports, dict[int, SinkTimes] | None]:
        write_files(folder / "events", sizes)
        words = ["-m", "tests.benchmarks.latency.floor", settings, str(folder)]
        return last_line([sys.executable, *words], environment), None

    return run


_CASES: dict[str, _Case] = {JOB: _job, FLOOR: _of("job"), PLAIN: _of("plain")}


def _programs(folder: Path, sizes: Sizes, run: _Case) -> dict[str, float]:
    """Count the programs of a run, less those of a run with fewer batches, for each batch."""
    fewer, more = sizes.counted()
    counts = []
    for name, each in (("fewer", fewer), ("more", more)):
        programs = Programs(folder / f"programs-{name}")
        run(folder / name, each, programs.environment)
        counts.append(programs.counted())
    batches = 2 * (more.batches - fewer.batches)
    return {name: count / batches for name, count in sorted((counts[1] - counts[0]).items())}
