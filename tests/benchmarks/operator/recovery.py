"""What the restarts and the sweep come to: unit costs, tables in Markdown, a plot.

`docs/spark/recovery-time.md` has the tables and `spark_app/estimate/units.py` the unit costs, both
from `docs/spark/recovery-time.json`, which `--docs` writes with the plot. Tests compare.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt

from tests.benchmarks.common.bars import LOSS, OURS
from tests.benchmarks.operator.restore import PARTS as OF_A_START

PAGE = Path(__file__).parents[3] / "docs" / "spark" / "recovery-time.md"
REPORT, PLOT = PAGE.with_suffix(".json"), PAGE.with_suffix(".svg")
COMMAND = "python -m tests.benchmarks.operator --only d,e,f,g --docs"
PARTS = {"d": "tradeoff", "e": "state", "f": "restore", "g": "providers"}
"""Of the benchmark, with their names in its report."""

MB = 1e6

_COLOURS = ("#9aa5b1", "#5f7a8c", "#2f4858", LOSS, OURS)


def publish(found: dict[str, Any]) -> None:
    """Write the report and the plot beside the page, and the page's tables into it."""
    kept = ("machine", "versions", "commits", *PARTS.values())
    report = {
        "command": COMMAND,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "units": units(found),
        **{name: found[name] for name in kept},
    }
    REPORT.write_text(json.dumps(_rounded(report), indent=1) + "\n")
    draw(report, PLOT)
    text = PAGE.read_text()
    for name, table in tables(json.loads(REPORT.read_text())).items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        text = f"{before}<!-- {name} -->\n{table}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    PAGE.write_text(text)


def units(found: dict[str, Any]) -> dict[str, float]:
    """The unit costs of `holdfast.spark_app.estimate.units`, of three significant digits."""
    points, sweep, lines = found["restore"], found["tradeoff"], found["state"]["lines"]
    millions = [point["open_ids"] / 1e6 for point in points]
    starts = [each for point in points for each in point["rounds"]]
    start_s = float(
        np.median([each["python"] + each["session"] + each["query"] for each in starts])
    )
    first = _line(millions, (p["seconds"]["load"] + p["seconds"]["batch"] for p in points))
    rows = [point["events"] / point["batches"] for point in sweep["points"]]
    batch = _line(rows, (point["batch_s"] for point in sweep["points"]))
    replay = _line(
        (point["replayed_events"] for point in sweep["points"]),
        (point["recovery_s"] for point in sweep["points"]),
    )
    ids = np.array([point["open_ids"] for point in points], np.float64)
    merchants = np.array([point["merchants"] for point in points], np.float64)
    files = np.array([point["state_file_bytes"] for point in points], np.float64)
    (id_file, merchant_file), *_ = np.linalg.lstsq(np.array([ids, merchants]).T, files)
    largest = points[-1]
    merchant_log = float(
        np.median([point["small_changelog_bytes"] / point["merchants"] for point in points])
    )
    per_fed = largest["fed_batch_events"]
    shortest = sweep["points"][0]
    made = {
        "start_s": start_s,
        "first_batch_s": first[0],
        "restore_s_per_million_ids": first[1],
        "replay_s_per_million_events": replay[1] * 1e6,
        "batch_s": batch[0],
        "batch_s_per_million_events": batch[1] * 1e6,
        "state_bytes_per_id": id_file,
        "state_bytes_per_merchant": merchant_file,
        "changelog_bytes_per_event": (
            (largest["fed_changelog_bytes"] - merchant_log * largest["merchants"]) / per_fed
        ),
        "changelog_bytes_per_merchant": merchant_log,
        "log_bytes_per_batch": (
            shortest["bytes_per_event"]["logs"] * shortest["events"] / shortest["batches"]
        ),
        "java_bytes": lines["java_peak_bytes"]["at_none"],
        "java_bytes_per_million_ids": lines["java_peak_bytes"]["per_million"],
        "python_bytes": lines["python_peak_bytes"]["at_none"],
        "python_bytes_per_million_ids": lines["python_peak_bytes"]["per_million"],
    }
    return {name: float(f"{max(value, 0.0):.3g}") for name, value in made.items()}


def tables(report: dict[str, Any]) -> dict[str, str]:
    """The tables of the page by the names of their places."""
    return {
        "restore": _restore_table(report),
        "sweep": _sweep_table(report),
        "units": _unit_table(report),
        "providers": _provider_table(report),
    }


def _unit_table(report: dict[str, Any]) -> str:
    names = {
        "start_s": "a start until its first batch begins, s",
        "first_batch_s": "the first batch, without ids and events, s",
        "restore_s_per_million_ids": "more of it, s per million ids",
        "replay_s_per_million_events": "more of it, s per million events",
        "batch_s": "a later batch, without events, s",
        "batch_s_per_million_events": "more of it, s per million events",
        "state_bytes_per_id": "RocksDB's files, bytes per id",
        "state_bytes_per_merchant": "RocksDB's files, bytes per merchant",
        "changelog_bytes_per_event": "changelog, bytes per event and time that it is written",
        "changelog_bytes_per_merchant": "changelog, bytes per merchant and batch",
        "log_bytes_per_batch": "plan, commit and source log, bytes per batch",
        "java_bytes": "the JVM at its peak, bytes",
        "java_bytes_per_million_ids": "more of it, bytes per million ids",
        "python_bytes": "the Python workers at their peak, bytes",
        "python_bytes_per_million_ids": "more of it, bytes per million ids",
    }
    units = report["units"]
    return _markdown(
        ("unit", "cost"), [(words, f"{units[name]:,.10g}") for name, words in names.items()]
    )


def _restore_table(report: dict[str, Any]) -> str:
    return _markdown(
        (
            *("open ids", "Python", "JVM and session", "query", "state load", "batch"),
            *(
                "start to commit",
                "processor",
                "changelogs replayed",
                "RocksDB files",
                "a warm small batch",
            ),
        ),
        [
            (
                f"{point['open_ids'] / 1e6:.1f} M",
                *(f"{point['seconds'][part]:.1f} s" for part in OF_A_START),
                f"**{point['seconds']['total']:.0f} s**",
                f"{point['seconds']['cpu']:.0f} s",
                f"{max(each['changelogs'] for each in point['rounds'])}",
                f"{point['state_file_bytes'] / MB:.0f} MB",
                f"{point['small_batch_s']:.1f} s",
            )
            for point in report["restore"]
        ],
    )


def _sweep_table(report: dict[str, Any]) -> str:
    return _markdown(
        (
            *("interval", "batch", "busy", "overhead", "checkpoint", "processor s per M"),
            *("changelog B per event", "log B per event", "replayed", "recovered after"),
        ),
        [
            (
                f"{point['interval_s']:g} s",
                f"{point['batch_s']:.1f} s",
                f"{point['busy']:.0%}",
                f"{point['overhead']:.0%}",
                f"{point['checkpoint']:.0%}",
                f"{point['cpu_s_per_million']:.0f}",
                f"{point['bytes_per_event']['changelog']:.0f}",
                f"{point['bytes_per_event']['logs']:.1f}",
                f"{point['replayed_events']:,}",
                f"{point['recovery_s']:.0f} s",
            )
            for point in report["tradeoff"]["points"]
        ],
    )


def _provider_table(report: dict[str, Any]) -> str:
    heap, rocks = (report["providers"][name] for name in ("heap", "rocksdb"))
    lines = (
        ("events per second", "rate", "{:,.0f}", 1),
        ("median batch, s", "batch_s", "{:.1f}", 1),
        ("slowest batch, s", "slowest_batch_s", "{:.1f}", 1),
        ("commit of the state in it, s", "commit_s", "{:.2f}", 1),
        ("garbage collection, s in all", "collection_s", "{:.1f}", 1),
        ("live Java heap after a full collection, MB", "live_heap_bytes", "{:,.0f}", MB),
        ("state as Spark reports it, MB", "state_memory_bytes", "{:,.0f}", MB),
        ("peak memory of the JVM, MB", "java_peak_bytes", "{:,.0f}", MB),
        ("processor s per M events", "cpu_s_per_million", "{:.0f}", 1),
    )
    rows = [
        (words, form.format(heap[key] / unit), form.format(rocks[key] / unit))
        for words, key, form, unit in lines
    ]
    rows.append(
        (
            "deltas or changelogs written, MB",
            *(f"{each['written_bytes']['deltas'] / MB:,.0f}" for each in (heap, rocks)),
        )
    )
    rows.append(
        (
            "first batch after a restart, s",
            *(f"{each['restart']['first_batch_s']:.1f}" for each in (heap, rocks)),
        )
    )
    return _markdown(("", "heap (HDFSBackedStateStore)", "RocksDB, changelogs"), rows)


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw the restarts and the sweep."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "holdfast", "font.size": 9})
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
    _restarts(left, report["restore"])
    points = report["tradeoff"]["points"]
    seconds = [point["interval_s"] for point in points]
    rate = report["tradeoff"]["events_per_second"]
    for key, label, colour, style in (
        ("busy", "busy: batch / interval", OURS, "o-"),
        ("overhead", "overhead: the batch itself", LOSS, "s--"),
        ("checkpoint", "checkpoint: plan, state, commit", _COLOURS[1], "^:"),
    ):
        middle.plot(seconds, [100 * p[key] for p in points], style, color=colour, label=label)
    middle.set_title(f"Interval sweep at {rate:,} events a second")
    middle.set_ylabel("%")
    middle.legend(frameon=False)
    right.plot(seconds, [p["recovery_s"] for p in points], "o-", color=LOSS)
    for point in points:
        right.annotate(
            f"{point['replayed_events']:,}",
            (point["interval_s"], point["recovery_s"]),
            (0, 7),
            textcoords="offset points",
            ha="center",
        )
    right.set_title("SIGKILL to commit, with the events replayed")
    right.set_ylabel("s")
    right.margins(x=0.1)
    right.set_ylim(0, 1.15 * max(p["recovery_s"] for p in points))
    for axes in (middle, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(seconds, [f"{each:g} s" for each in seconds])
        axes.set_xlabel("interval")
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(_origin(report), fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))


def _restarts(axes: Any, points: Sequence[dict[str, Any]]) -> None:
    names = [f"{point['open_ids'] / 1e6:.1f} M ids" for point in points]
    left = np.zeros(len(points))
    for part, colour in zip(OF_A_START, _COLOURS, strict=True):
        values = np.array([point["seconds"][part] for point in points])
        axes.barh(names, values, left=left, color=colour, label=part)
        left += values
    axes.set_title("Start after SIGKILL until the next commit")
    axes.set_xlabel("s")
    axes.invert_yaxis()
    axes.legend(frameon=False, ncols=5, loc="lower center", bbox_to_anchor=(0.5, -0.32))


def _origin(report: dict[str, Any]) -> str:
    machine, commits = report["machine"], report["commits"]
    measured = ", ".join(
        f"{commit[:12]} ({', '.join(sorted(part for part in commits if commits[part] == commit))})"
        for commit in sorted(set(commits.values()))
    )
    return (
        f"{report['command']}   commit {measured}   {report['date']}   "
        f"{machine['cpus']} cores, {machine['model']}, {machine['memory_bytes'] / 2**30:.0f} GiB,"
        f" load {machine['load_before']:.1f}"
    )


def _line(x: Iterable[float], y: Iterable[float]) -> tuple[float, float]:
    """Start and slope of a straight line, neither below 0."""
    slope, start = np.polyfit(np.array(list(x)), np.array(list(y)), 1)
    return max(float(start), 0.0), max(float(slope), 0.0)


def _rounded(value: Any) -> Any:
    """The same with four significant digits, so that the report is readable."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if value < 1e4 else round(value)
    return value


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
