"""The text tables."""

from typing import Any

from tests.benchmarks.common.tables import table
from tests.benchmarks.latency.phases import BETWEEN, TRIGGER


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    if "fixed" in found:
        fixed = found["fixed"]
        for kind in ("rows", "empty"):
            print(_phases(fixed, kind, found["parameters"]["rows"]))
        print(_programs(fixed["cases"]))
        for name, ratio in fixed["ratios"].items():
            print(f"{name}: {ratio:.2f}")
    if "corrections" in found or "closings" in found:
        print(_live(found))
    for point in found.get("corrections", ()):
        each = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in point["peak_bytes"].items())
        print(f"peak memory at {point['events_per_second']:,} events a second, MB: {each}")
    load = found["machine"]
    print(f"\nload before {load['load_before']:.1f}, after {load.get('load_after', 0):.1f}")


def _phases(fixed: dict[str, Any], kind: str, rows: int) -> str:
    cases = {name: case[kind] for name, case in fixed["cases"].items()}
    names = list(dict.fromkeys(name for case in cases.values() for name in case))
    # What a batch costs stands at the end.
    names.sort(key=[TRIGGER, BETWEEN].count)
    what = f"{rows} rows" if kind == "rows" else "no row"
    return table(
        f"A batch with {what}: milliseconds by phase, median and p95, {fixed['partitions']}"
        " partitions",
        ("phase", *(f"{name}{more}" for name in cases for more in ("", " p95"))),
        [
            (
                name,
                *(
                    f"{case[name][key]:.1f}" if name in case else "-"
                    for case in cases.values()
                    for key in ("median", "p95")
                ),
            )
            for name in names
        ],
    )


def _programs(cases: dict[str, Any]) -> str:
    return table(
        "Programs that are started for a batch",
        ("case", "together", "which"),
        [
            (
                name,
                f"{sum(case['programs'].values()):.1f}",
                ", ".join(f"{each} {count:.1f}" for each, count in case["programs"].items()),
            )
            for name, case in cases.items()
        ],
    )


def _live(found: dict[str, Any]) -> str:
    keys = ("p50_s", "p95_s", "p99_s", "max_s")
    options = " ".join(found["parameters"]["job_options"])
    rows = [
        (
            f"corrections, {point['events_per_second']:,} a second",
            f"{point['events']:,}",
            *(f"{point[key]:.3f}" for key in keys),
        )
        for point in found.get("corrections", ())
    ]
    if "closings" in found:
        point = found["closings"]
        rows.append(("closings", f"{point['events']:,}", *(f"{point[key]:.3f}" for key in keys)))
    return table(
        f"Seconds from the event's file to the applied action; job run {options or 'as it is'}",
        ("events", "actions", "p50", "p95", "p99", "max"),
        rows,
    )
