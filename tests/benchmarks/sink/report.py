"""The text tables."""

from typing import Any

from tests.benchmarks.common.tables import table
from tests.benchmarks.sink.cases import CASES

MB = 1e6


def cases(found: dict[str, dict[str, Any]], parameters: dict[str, Any]) -> str:
    """Throughput."""
    subjects = {False: parameters["subjects"], True: parameters["many_subjects"]}
    return table(
        f"Rows a second into Postgres, {parameters['rows']:,} rows a batch",
        ("case", "", "subjects", "rounds", "median", "min", "max", "processor s per M"),
        [
            (
                name,
                CASES[name].label,
                f"{subjects[CASES[name].many_subjects]:,}",
                str(case["rounds"]),
                *(f"{case[key]:,.0f}" for key in ("median", "min", "max")),
                f"{case['cpu_s_per_million']['median']:.1f}",
            )
            for name, case in found.items()
        ],
    )


def growth(points: list[dict[str, Any]], where: str) -> str:
    """The cost of a row by stored rows, on the server that `where` names."""
    return table(
        f"Microseconds a row by rows already stored, library part of the driver path; {where}",
        ("stored", "median", "min", "max", "of processor"),
        [
            (
                f"{point['stored']:,}",
                *(f"{point['us_per_row'][key]:.1f}" for key in ("median", "min", "max")),
                f"{point['cpu_us_per_row']['median']:.1f}",
            )
            for point in points
        ],
    )


def memory(found: list[dict[str, Any]]) -> str:
    """The memory of the driver and of Postgres."""
    names = ("entry_bytes", "baseline_bytes", "peak_bytes", "above_bytes", "workers_peak_bytes")
    return table(
        "Memory of the driver (Python and JVM) while one batch is written, MB, and seconds",
        (
            "path",
            "rows",
            "s",
            "entries",
            "baseline",
            "peak",
            "above baseline",
            "workers",
            "Postgres",
        ),
        [
            (
                case["path"],
                f"{case['rows']:,}",
                f"{case['seconds']:.0f}",
                *(f"{case[name] / MB:,.0f}" for name in names),
                f"{(case['postgres_peak_bytes'] or 0) / MB:,.0f}",
            )
            for case in found
        ],
    )
