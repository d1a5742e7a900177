"""What the restarts and the sweep come to: unit costs, tables in Markdown, a plot.

`docs/spark/recovery-time.md` has the tables and `spark_app/estimate.py` the unit costs, both
from `docs/spark/recovery-time.json`. `python -m tests.benchmarks.operator.recovery` writes it, with
the plot, from the last report of the parts `sweep`, `state` and `restore`. Tests compare.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.common.runner import report_of
from tests.benchmarks.common.tables import LOSS, OTHERS, OURS, markdown
from tests.benchmarks.operator.restore import PARTS as OF_A_START

PAGE = Path(__file__).parents[3] / "docs" / "spark" / "recovery-time.md"
REPORT, PLOT = PAGE.with_suffix(".json"), PAGE.with_suffix(".svg")
COMMAND = "python -m tests.benchmarks.operator --only sweep,state,restore"
PARTS = ("tradeoff", "state", "restore")
MB = 1e6

UNITS = {
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


def publish(results: dict[str, Any]) -> None:
    """Write the report and the plot beside the page, and the page's tables into it."""
    report = {
        "command": COMMAND,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "units": units(results),
        **{name: results[name] for name in ("machine", "versions", "commits", *PARTS)},
    }
    REPORT.write_text(json.dumps(_rounded(report), indent=1) + "\n")
    draw(report, PLOT)
    text = PAGE.read_text()
    for name, rows in tables(json.loads(REPORT.read_text())).items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition("<!-- end -->")[2]
        text = f"{before}<!-- {name} -->\n{markdown(rows)}\n<!-- end -->{after}"
    PAGE.write_text(text)


def units(results: dict[str, Any]) -> dict[str, float]:
    """The unit costs of `spark_app.estimate`, of three significant digits."""
    points, sweep, lines = results["restore"], results["tradeoff"], results["state"]["lines"]
    millions = [point["open_ids"] / 1e6 for point in points]
    starts = [each for point in points for each in point["rounds"]]
    first = _line(millions, (p["seconds"]["load"] + p["seconds"]["batch"] for p in points))
    rows = [point["events"] / point["batches"] for point in sweep["points"]]
    batch = _line(rows, (point["batch_s"] for point in sweep["points"]))
    replay = _line(
        (point["replayed_events"] for point in sweep["points"]),
        (point["recovery_s"] for point in sweep["points"]),
    )
    counts = np.array([[point["open_ids"], point["merchants"]] for point in points], np.float64)
    files = np.array([point["state_file_bytes"] for point in points], np.float64)
    (id_file, merchant_file), *_ = np.linalg.lstsq(counts, files)
    largest, shortest = points[-1], sweep["points"][0]
    merchant_log = float(np.median([p["small_changelog_bytes"] / p["merchants"] for p in points]))
    per_fed = largest["fed_changelog_bytes"] - merchant_log * largest["merchants"]
    logs = shortest["bytes_per_event"]["logs"] * shortest["events"] / shortest["batches"]
    java, python = lines["java_peak_bytes"], lines["python_peak_bytes"]
    pairs = (
        *(float(np.median([each["python"] + each["session"] + each["query"] for each in starts])),),
        *(first[0], first[1], replay[1] * 1e6, batch[0], batch[1] * 1e6, id_file, merchant_file),
        *(per_fed / largest["fed_batch_events"], merchant_log, logs),
        *(java["at_none"], java["per_million"], python["at_none"], python["per_million"]),
    )
    return {n: float(f"{max(v, 0.0):.3g}") for n, v in zip(UNITS, pairs, strict=True)}


def tables(report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of the page's tables that the report has, by the names of their places."""
    by_name = {}
    if "restore" in report:
        by_name["restore"] = [
            {
                "open ids": f"{point['open_ids'] / 1e6:.1f} M",
                **{f"{part}, s": point["seconds"][part] for part in OF_A_START},
                "start to commit, s": point["seconds"]["total"],
                "processor, s": point["seconds"]["cpu"],
                "changelogs replayed": max(each["changelogs"] for each in point["rounds"]),
                "RocksDB files, MB": point["state_file_bytes"] / MB,
                "a warm small batch, s": point["small_batch_s"],
            }
            for point in report["restore"]
        ]
    if "tradeoff" in report:
        by_name["sweep"] = [
            {
                "interval": f"{point['interval_s']:g} s",
                "batch, s": point["batch_s"],
                **{part: f"{point[part]:.0%}" for part in ("busy", "overhead", "checkpoint")},
                "processor s per M": point["cpu_s_per_million"],
                "changelog B per event": point["bytes_per_event"]["changelog"],
                "log B per event": point["bytes_per_event"]["logs"],
                "replayed": point["replayed_events"],
                "recovered after, s": point["recovery_s"],
            }
            for point in report["tradeoff"]["points"]
        ]
    if "units" in report:
        costs = report["units"]
        by_name["units"] = [{"unit": w, "cost": f"{costs[n]:,.10g}"} for n, w in UNITS.items()]
    return by_name


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw the restarts and the sweep."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "holdfast", "font.size": 9})
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
    _restarts(left, report["restore"])
    points = report["tradeoff"]["points"]
    seconds = [point["interval_s"] for point in points]
    for key, label, colour, style in (
        ("busy", "busy: batch / interval", OURS, "o-"),
        ("overhead", "overhead: the batch itself", LOSS, "s--"),
        ("checkpoint", "checkpoint: plan, state, commit", OTHERS, "^:"),
    ):
        middle.plot(seconds, [100 * p[key] for p in points], style, color=colour, label=label)
    rate = report["tradeoff"]["events_per_second"]
    middle.set(title=f"Interval sweep at {rate:,} events a second", ylabel="%")
    middle.legend(frameon=False)
    recovered = [point["recovery_s"] for point in points]
    right.plot(seconds, recovered, "o-", color=LOSS)
    for x, y, point in zip(seconds, recovered, points, strict=True):
        right.annotate(f"{point['replayed_events']:,}", (x, y))
    right.set(title="SIGKILL to commit, with the events replayed", ylabel="s")
    right.set_ylim(0, 1.15 * max(recovered))
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
    for part, colour in zip(OF_A_START, (OTHERS, "#5f7a8c", "#2f4858", LOSS, OURS), strict=True):
        values = np.array([point["seconds"][part] for point in points])
        axes.barh(names, values, left=left, color=colour, label=part)
        left += values
    axes.set(title="Start after SIGKILL until the next commit", xlabel="s")
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


if __name__ == "__main__":
    publish(json.loads(report_of("operator").read_text()))
