"""The results as text tables."""

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.common.tables import table
from tests.benchmarks.queries.query import BAR_MS

NAMES = {"console": "Pages of the console", "api": "Reads of the API", "cli": "Commands"}
SHOWN = 60
"""Characters of a name."""


def shown(report: Mapping[str, Any]) -> str:
    """Return the tables of a report, the slowest query first, and how many are within the bar."""
    parts = [_kind(report, kind) for kind in NAMES]
    parts.append(table("Queries that take long", ("", "s"), _long(report)))
    outbox = ", ".join(f"{count:,} {name}" for name, count in report["outbox"].items())
    read = ", ".join(sorted(report["read_whole"])) or "none"
    whole = f"read entry, entry_key, attempt or lane whole: {read}"
    late = [each["shows"] for each in report["queries"] if not each["within_bar"]]
    parts += [
        f"\n{outbox}",
        f"{len(report['statements'])} statements; {whole}",
        f"peak memory of the server: {report['server_peak_rss_bytes'] / 1e6:,.0f} MB",
        f"load before: {report['machine']['load_before']:.1f} on {report['machine']['cpus']} cores",
        f"{len(report['queries']) - len(late)} of {len(report['queries'])} queries have a median"
        f" under {BAR_MS:.0f} ms" + (f"; not: {'; '.join(late)}" if late else ""),
    ]
    return "\n".join(parts)


def _kind(report: Mapping[str, Any], kind: str) -> str:
    rows = sorted(
        (each for each in report["queries"] if each["kind"] == kind),
        key=lambda each: -float(each["median_ms"]),
    )
    as_process = kind == "cli"
    head = ("", "median ms", "p95 ms", f"under {BAR_MS:.0f}")
    return table(
        NAMES[kind],
        (*head, "with Python's start") if as_process else head,
        [
            (
                each["shows"][:SHOWN],
                f"{each['median_ms']:.0f}",
                f"{each['p95_ms']:.0f}",
                "yes" if each["within_bar"] else "NO",
                *([f"{each['as_process_ms']:.0f}"] if as_process else []),
            )
            for each in rows
        ],
    )


def _long(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, f"{seconds:.1f}") for name, seconds in report["seconds"].items()]
