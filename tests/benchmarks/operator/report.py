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
    """The interval sweep."""
    title = (
        f"Interval sweep at {found['events_per_second']:,.0f} events a second: a batch costs"
        f" {found['batch_fixed_ms']:.0f} ms and each event {found['event_us']:.0f} us"
    )
    head = (
        *("interval", "batches", "batch", "busy", "overhead", "checkpoint", "processor s per M"),
        *("changelog B per event", "replayed events", "committed again after"),
    )
    return table(
        title,
        head,
        [
            (
                f"{point['interval_s']:g} s",
                str(point["batches"]),
                f"{point['batch_s']:.2f} s",
                *(f"{point[name]:.0%}" for name in ("busy", "overhead", "checkpoint")),
                f"{point['cpu_s_per_million']:.0f}",
                f"{point['bytes_per_event']['changelog']:,.0f}",
                f"{point['replayed_events']:,}",
                f"{point['recovery_s']:.1f} s",
            )
            for point in found["points"]
        ],
    )


def restore(points: list[dict[str, Any]]) -> str:
    """Restarts by the number of ids in the state."""
    return table(
        "Restart after SIGKILL: seconds until the next commit, medians",
        ("open ids", *points[0]["seconds"], "warm small batch"),
        [
            (
                f"{point['open_ids']:,}",
                *(f"{each:.2f}" for each in point["seconds"].values()),
                f"{point['small_batch_s']:.2f}",
            )
            for point in points
        ],
    )


def providers(found: dict[str, dict[str, Any]]) -> str:
    """Spark's own operators with the state on the heap and in RocksDB."""
    return table(
        "State store providers under deduplication and a windowed sum",
        ("provider", "events/s", "batch", "slowest", "collection", "live heap MB", "first after"),
        [
            (
                name,
                f"{case['rate']:,.0f}",
                f"{case['batch_s']:.2f} s",
                f"{case['slowest_batch_s']:.2f} s",
                f"{case['collection_s']:.2f} s",
                f"{case['live_heap_bytes'] / MB:,.0f}",
                f"{case['restart']['first_batch_s']:.2f} s",
            )
            for name, case in found.items()
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
