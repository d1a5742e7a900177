"""What a batch spends its time on, from Spark's own report of it and from a stopwatch in the sink.

Milliseconds. The parts of a trigger do not overlap:

    new files + offset log + plan + batch + commit log + other = trigger
    batch = Spark's jobs + the sink + the rest

Those of the state are inside `Spark's jobs`, of a mean partition; `between triggers` is the time
from the end of one to the start of the next.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

TRIGGER = "trigger"
BETWEEN = "between triggers"


@dataclass(frozen=True, slots=True)
class SinkTimes:
    """How long the sink was called for a batch, and how long it wrote, in milliseconds."""

    call: float = 0.0
    write: float = 0.0


def phases(report: dict[str, Any], sunk: SinkTimes | None) -> dict[str, float]:
    """Return the milliseconds of each phase of a batch; `sunk` is None where nothing is written."""
    spark: dict[str, float] = report["durationMs"]
    trigger, batch = spark["triggerExecution"], spark["addBatch"]
    found = {
        "new files": spark.get("latestOffset", 0) + spark.get("getBatch", 0),
        "offset log": spark.get("walCommit", 0),
        "plan": spark.get("queryPlanning", 0),
        "batch": batch,
        "commit log": spark.get("commitOffsets", 0) + spark.get("commitBatch", 0),
    }
    found["other"] = trigger - sum(found.values())
    if sunk is not None:
        found |= {
            "of it Spark's jobs": sunk.call - sunk.write,
            "of it the sink": sunk.write,
            "of it the rest": batch - sunk.call,
        }
    return {**found, **_state(report), TRIGGER: trigger}


def _state(report: dict[str, Any]) -> dict[str, float]:
    found = {"state: load": 0.0, "state: commit": 0.0, "state: update": 0.0}
    for operator in report["stateOperators"]:
        partitions = max(operator["numShufflePartitions"], 1)
        details = operator["customMetrics"]
        found["state: load"] += details.get("rocksdbLoadLatencyMs", 0) / partitions
        found["state: commit"] += operator["commitTimeMs"] / partitions
        found["state: update"] += operator["allUpdatesTimeMs"] / partitions
    return found


def summarize(
    reports: Sequence[dict[str, Any]], sunk: dict[int, SinkTimes] | None
) -> dict[str, dict[str, float]]:
    """Return the median and the 95th percentile of each phase of some consecutive batches."""
    each = [
        phases(report, None if sunk is None else sunk.get(report["batchId"], SinkTimes()))
        for report in reports
    ]
    columns = {name: [one[name] for one in each] for name in each[0]}
    columns[BETWEEN] = _between(reports)
    return {name: _spread(values) for name, values in columns.items() if values}


def _between(reports: Sequence[dict[str, Any]]) -> list[float]:
    began = [datetime.fromisoformat(report["timestamp"]).timestamp() * 1000 for report in reports]
    took = [report["durationMs"]["triggerExecution"] for report in reports]
    return [
        after - before - ms
        for before, after, ms in zip(began[:-1], began[1:], took[:-1], strict=True)
    ]


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "p95": statistics.quantiles(values, n=20, method="inclusive")[18]
        if len(values) > 1
        else values[0],
    }
