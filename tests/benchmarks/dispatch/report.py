"""The ratios with thresholds, and the text tables."""

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.common.tables import table
from tests.benchmarks.dispatch.cases import (
    BARE_CLIENT,
    CASES,
    LIBRARY_CLIENTS,
    ORDERED_PEERS,
    UNORDERED_PEERS,
)

MB = 1e6


def name_of(case: str, shape: str) -> str:
    """Return what the report calls a case: the main shape is not named."""
    return case if shape == "shuffled" else f"{case}_{shape}"


def ratios(found: Mapping[str, Any], engine: str) -> dict[str, float]:
    """Return what there are figures for; `engine` is the dispatcher's default one."""
    medians = {name: case["median"] for name, case in found["cases"].items()}
    wanted = {
        "vs_bare_client": ("holdfast", BARE_CLIENT[engine]),
        "vs_library_client": ("holdfast", _best(medians, LIBRARY_CLIENTS)),
        "vs_best_ordered_peer": ("holdfast", _best(medians, ORDERED_PEERS)),
        "vs_best_unordered_peer": ("holdfast", _best(medians, UNORDERED_PEERS)),
        "httpx_vs_bare_client": ("holdfast_httpx", "loop_httpx"),
        "burst_vs_shuffled": ("holdfast_burst", "holdfast"),
        "batch_vs_shuffled": ("holdfast_batch", "holdfast"),
    }
    divided = {
        name: medians[ours] / medians[other]
        for name, (ours, other) in wanted.items()
        if ours in medians and other in medians
    }
    if points := found.get("backlog"):
        first, *_, last = (point["us_per_entry"]["median"] for point in points)
        divided["backlog_growth"] = last / first
    if held := found.get("snapshot"):
        free, late = (held[name]["us_per_entry"]["median"] for name in ("free", "held"))
        divided["held_snapshot"] = late / free
    return divided


def _best(medians: Mapping[str, float], names: tuple[str, ...]) -> str | None:
    return max((name for name in names if name in medians), key=medians.__getitem__, default=None)


def cases(found: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """Throughput."""
    rows = []
    for name, case in found.items():
        known = max((each for each in CASES if name.startswith(each)), key=len)
        rest = name.removeprefix(known).removeprefix("_")
        figures = [f"{case[key]:,.0f}" for key in ("median", "min", "max")]
        used = [f"{case[key]['median']:,.0f}" for key in ("cpu_us", "server_cpu_us")]
        kept = "says so" if CASES[known].ordered and CASES[known].queues else "-"
        order = [kept, f"{case['inversions']:,}", f"{case['overlaps']:,}"]
        rows.append((name, f"{CASES[known].label} {rest}".strip(), *figures, *used, *order))
    head = ("case", "", "median", "min", "max", "us client", "us server", "ordered")
    return table(title, (*head, "inverted", "overlapping"), rows)


def latency(found: Mapping[str, Any]) -> str:
    """Idle latency."""
    rows = [
        (name, CASES[name].label, *(f"{case[key]:.1f}" for key in ("p50", "p99", "max")))
        for name, case in found.items()
        if name != "missing"
    ]
    return table("Commit to receiver, idle, ms", ("case", "", "p50", "p99", "max"), rows)


def backlog(points: list[dict[str, Any]]) -> str:
    """Cost by waiting entries."""
    names = ("us_per_entry", "claim_us", "settle_us")
    rows = [
        (
            f"{point['waiting']:,}",
            *(f"{point[name]['median']:.1f}" for name in names),
            *(f"{point['table_bytes'][name] / MB:,.0f}" for name in ("entry", "lane")),
        )
        for point in points
    ]
    head = ("waiting", "both", "claim", "settle", "entries MB", "lanes MB")
    return table("Microseconds an entry, claim and settle, by entries that wait", head, rows)


def snapshot(found: Mapping[str, Any]) -> str:
    """Cost under an old snapshot."""
    rows = [
        (
            name,
            f"{found[name]['us_per_entry']['median']:.1f}",
            f"{found[name]['claim_ms']['median']:.1f}",
            f"{found[name]['entries']:,}",
            f"{found[name]['table_bytes']['lane'] / MB:,.1f}",
        )
        for name in ("free", "held")
    ]
    head = ("snapshot", "us an entry", "claim ms", "entries", "lanes MB")
    return table(f"Another session for {found['minutes']:g} minutes, last fifth", head, rows)


def endurance(found: Mapping[str, Any]) -> str:
    """The rate kept after an outage, and the memory taken."""
    lines = []
    if kept := found.get("outage"):
        lines.append(
            f"outage: {kept['delivered']:,} of {kept['entries']:,} delivered in"
            f" {kept['seconds']:,.0f} s; most in a second {kept['most_in_a_second']:,} where"
            f" {kept['rate_per_second']:,} are allowed; {kept['peak_rss_bytes'] / MB:,.0f} MB"
        )
    if taken := found.get("memory"):
        lines.append(
            f"memory: {taken['peak_rss_bytes'] / 2**20:,.0f} MiB at most while"
            f" {taken['entries']:,} entries waited"
        )
    return "\n".join(lines)
