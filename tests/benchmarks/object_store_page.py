"""The tables and the plot of `docs/spark/remote-checkpoints.md`, from the last report.

`python -m tests.benchmarks.object_store_page` writes them, and the report beside them, once
`make bench-object-store` has measured. A test compares.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.common.runner import report_of
from tests.benchmarks.common.tables import LOSS, OTHERS, OURS, markdown
from tests.benchmarks.object_store import COSTS, TIMES

PAGE = Path(__file__).parents[2] / "docs" / "spark" / "remote-checkpoints.md"
REPORT, PLOT = PAGE.with_suffix(".json"), PAGE.with_suffix(".svg")
COMMAND = "make bench-object-store"

WAYS = {
    "renames": "Spark's renames",
    "conditional": "conditional create (default)",
    "no_checksum_files": "and without checksum files",
}
COLOURS = dict(zip(WAYS, (LOSS, OURS, OTHERS), strict=True))

KINDS = {
    "requests": "requests",
    **{kind: kind for kind in ("PUT", "COPY", "LIST", "HEAD", "GET", "DELETE")},
    "bytes sent": "bytes sent",
    "bytes received": "bytes received",
    "euros at 1 s": "euros a month, a batch each second",
    "euros at 10 s": "euros a month, a batch each ten seconds",
}
WHOLE = ("bytes sent", "bytes received", "euros at 1 s", "euros at 10 s")


def publish(results: dict[str, Any]) -> None:
    """Write the report and the plot beside the page, and the page's tables into it."""
    report = {
        "command": COMMAND,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        **{name: results[name] for name in ("git_commit", "machine", "sizes")},
        "costs": results["tables"][COSTS]["rows"],
        "times": results["tables"][TIMES]["rows"],
    }
    REPORT.write_text(json.dumps(_rounded(report), indent=1) + "\n")
    report = json.loads(REPORT.read_text())
    draw(report, PLOT)
    text = PAGE.read_text()
    for name, rows in tables(report).items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition("<!-- end -->")[2]
        text = f"{before}<!-- {name} -->\n{markdown(rows)}\n<!-- end -->{after}"
    PAGE.write_text(text)


def tables(report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of the page's tables, by the names of their places."""
    costs = {row["case"]: row for row in report["costs"]}
    times = {(row["case"], row["latency ms"]): row for row in report["times"]}
    return {
        "costs": [
            {"a batch": shown}
            | {
                title: f"{costs[way][kind]:,.0f}" if kind in WHOLE else f"{costs[way][kind]:.1f}"
                for way, title in WAYS.items()
            }
            for kind, shown in KINDS.items()
        ],
        "times": [
            {"the store answers after": f"{latency} ms"}
            | {title: _both(times[way, latency]) for way, title in WAYS.items()}
            for latency in sorted({latency for _, latency in times})
        ],
    }


def _both(row: dict[str, Any]) -> str:
    return f"{row['store ms']:,.0f} of {row['batch ms']:,.0f} ms"


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw what is asked in a batch, and how long it waits for the answers."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "holdfast", "font.size": 9})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    kinds = ("PUT", "COPY", "LIST", "HEAD", "GET", "DELETE")
    shades = ("#1f6f54", "#5f9c83", "#b3401f", "#9aa5b1", "#c9d0d6", "#2f4858")
    at = [0.0] * len(WAYS)
    for kind, shade in zip(kinds, shades, strict=True):
        values = [row[kind] for row in report["costs"]]
        left.barh(list(WAYS.values()), values, left=at, color=shade, label=kind)
        at = [each + value for each, value in zip(at, values, strict=True)]
    for place, row in enumerate(report["costs"]):
        euros = f"{row['euros at 1 s']:,.0f} or {row['euros at 10 s']:,.0f} euros"
        left.annotate(euros, (at[place], place), xytext=(4, -3), textcoords="offset points")
    left.set(title="Requests of a batch, and a month of them at 1 s or 10 s", xlabel="requests")
    left.set_xlim(0, 1.3 * max(at))
    left.invert_yaxis()
    left.legend(frameon=False, ncols=6, loc="lower center", bbox_to_anchor=(0.5, -0.28))
    for way, title in WAYS.items():
        rows = [row for row in report["times"] if row["case"] == way]
        places = [row["latency ms"] for row in rows]
        right.plot(places, [row["store ms"] for row in rows], "o-", color=COLOURS[way], label=title)
    right.set(
        title="A batch waits for the store", xlabel="the store answers after, ms", ylabel="ms"
    )
    right.set_ylim(bottom=0)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(_origin(report), fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))


def _origin(report: dict[str, Any]) -> str:
    machine = report["machine"]
    return (
        f"{report['command']}   commit {report['git_commit'][:12]}   {report['date']}   "
        f"{machine['cpus']} cores, {machine['model']}, load {machine['load_before']:.1f}"
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    publish(json.loads(report_of("object_store").read_text()))
