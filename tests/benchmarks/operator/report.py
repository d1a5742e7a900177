"""The text tables."""

from typing import Any

from tests.benchmarks.common.tables import table

MB = 1e6


def cases(found: dict[str, dict[str, Any]]) -> str:
    """Throughput."""
    return table(
        "Throughput: events a second, from the start of the query to its end",
        ("case", "events", "rounds", "median", "min", "max", "processor s per M", "median batch"),
        [
            (
                name,
                f"{case['events']:,}",
                str(case["rounds"]),
                *(f"{case[key]:,.0f}" for key in ("median", "min", "max")),
                f"{case['cpu_s_per_million']['median']:.1f}",
                f"{_median_batch(case) / 1000:.2f} s",
            )
            for name, case in found.items()
        ],
    )


def batches(case: dict[str, Any]) -> str:
    """Each batch of this operator."""
    return table(
        "Batches of this operator: milliseconds, medians of the rounds",
        ("batch", "events", "windows emitted", "median", "min", "max"),
        [
            (str(number), f"{rows:,}", f"{emitted:,}", *(f"{ms[key]:,.0f}" for key in _SPREAD))
            for number, (rows, emitted, ms) in enumerate(
                zip(case["batch_rows"], case["batch_emitted"], case["batch_ms"], strict=True)
            )
        ],
    )


def tradeoff(found: dict[str, Any]) -> str:
    """The checkpoint trade-off."""
    title = (
        f"Checkpoint trade-off at {found['events_per_second']:,.0f} events a second: a batch costs"
        f" {found['batch_fixed_ms']:.0f} ms and each event {found['event_us']:.0f} us"
    )
    head = (
        *("interval", "batches", "overhead", "busy", "events per busy s", "processor s per M"),
        *("checkpoint B per event", "replayed events", "recorded again after"),
    )
    return table(
        title,
        head,
        [
            (
                f"{point['interval_ms'] / 1000:g} s",
                str(point["batches"]),
                f"{point['overhead']:.0%}",
                f"{point['busy']:.0%}",
                f"{point['events_per_busy_s']:,.0f}",
                f"{point['cpu_s_per_million']:.0f}",
                f"{point['checkpoint_bytes_per_event']:,.0f}",
                f"{point['replayed_events']:,}",
                f"{point['recovery_s']:.1f} s",
            )
            for point in found["points"]
        ],
    )


def state(found: dict[str, Any]) -> str:
    """Growth: the measured points, and the straight line through them."""
    points, lines = found["points"], found["lines"]
    rows = [
        (
            label,
            *(f"{point[name] / MB:,.1f}" for point in points),
            f"{lines[name]['per_million'] / MB:,.1f}",
            f"{lines[name]['extrapolated'] / MB:,.0f}",
        )
        for name, label in _GROWTH.items()
    ]
    head = (
        "MB",
        *(f"{point['open_ids'] / 1e6:.2f} M ids" for point in points),
        "per M ids",
        f"{found['on_paper'] / 1e6:.0f} M on paper",
    )
    title = "State and memory by open ids; the last column is extrapolated, not measured"
    return table(title, head, rows)


def _median_batch(case: dict[str, Any]) -> float:
    full = [
        ms["median"] for ms, rows in zip(case["batch_ms"], case["batch_rows"], strict=True) if rows
    ]
    return sorted(full)[len(full) // 2]


_SPREAD = ("median", "min", "max")

_GROWTH = {
    "ids_bytes": "state: ids",
    "windows_bytes": "state: windows",
    "group_bytes": "state: merchants",
    "written_bytes": "checkpoint on disk",
    "java_peak_bytes": "peak memory: JVM",
    "python_peak_bytes": "peak memory: Python",
}
