"""The text tables."""

from typing import Any

from tests.benchmarks.common.tables import table


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    if "throughput" in found:
        throughput = found["throughput"]
        print(cases(throughput["cases"]))
        for name, ratio in throughput["ratios"].items():
            print(f"{name}: {ratio:.2f}")
        for words in throughput["disagreements"]:
            print(f"THE CASES DISAGREE: {words}")
    if "steady" in found:
        print(steady(found["steady"]))
    if "catch_up" in found:
        print(catch_up(found["catch_up"]))
    if "partitions" in found:
        print(partitions(found["partitions"]))
    load = found["machine"]
    print(f"\nload before {load['load_before']:.1f}, after {load.get('load_after', 0):.1f}")


def cases(found: dict[str, dict[str, Any]]) -> str:
    """Throughput."""
    return table(
        "Throughput: events a second, from the start of the query to its end",
        ("case", "events", "batches", "rounds", "median", "min", "max", "processor s per M"),
        [
            (
                name,
                f"{case['events']:,}",
                str(case["batches"]),
                str(case["rounds"]),
                *(f"{case[key]:,.0f}" for key in ("median", "min", "max")),
                f"{case['cpu_s_per_million']['median']:.1f}",
            )
            for name, case in found.items()
        ],
    )


def steady(found: dict[str, Any]) -> str:
    """Lag under a steady rate."""
    return table(
        f"Lag: seconds from the writing of a record until its batch is recorded; a batch every"
        f" {found['interval']}, {found['partitions']} partitions",
        ("events a second", "events", "batches", "median", "p99", "max"),
        [
            (
                f"{point['events_per_second']:,}",
                f"{point['events']:,}",
                str(point["batches"]),
                *(f"{point[key]:.2f}" for key in ("median_s", "p99_s", "max_s")),
            )
            for point in found["points"]
        ],
    )


def catch_up(found: dict[str, Any]) -> str:
    """From a backlog to the newest record, while traffic goes on."""
    title = (
        f"Catch-up: {found['event_seconds'] / 3600:g} h of event time behind, at most"
        f" {found['per_batch']:,} records a batch"
    )
    head = ("backlog", "traffic meanwhile", "first commit", "caught up", "events/s", "late events")
    row = (
        f"{found['backlog']:,}",
        f"{found['events_per_second']:,}/s",
        f"{found['first_commit_s']:.1f} s",
        f"{found['caught_up_s']:.1f} s",
        f"{found['rate']:,.0f}",
        f"{found['late']:,}",
    )
    return table(title, head, [row])


def partitions(found: dict[str, Any]) -> str:
    """One idle partition, and one whose events are behind."""
    title = (
        f"Partitions: two in time, one idle, one {found['behind_s']} s behind, in"
        f" {found['rounds']} minutes of event time; idle timeout {found['idle_timeout_s']} s"
    )
    head = ("watermark delay", "events of the slow one", "of them late", "window published after")
    return table(
        title,
        (*head, "silence closes after"),
        [
            (
                f"{point['delay_s']} s",
                f"{point['slow_events']:,}",
                f"{point['late']:,}",
                "-"
                if point["published_after_s"] is None
                else f"{point['published_after_s']:.0f} s",
                f"{point['silence_closed_after_s']:.1f} s",
            )
            for point in found["points"]
        ],
    )
