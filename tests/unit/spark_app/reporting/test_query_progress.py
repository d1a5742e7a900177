from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.spark_app.reporting.query_progress import (
    batches_after,
    checkpoint_phases,
    event_rows,
    is_recorded,
    tick_rows,
)


def _query(*reports: tuple[int, dict[str, int]]) -> Any:
    """A query with the reports of Spark that count here: batch ids, and phases of a batch."""
    recent = [SimpleNamespace(batchId=number, durationMs=phases) for number, phases in reports]
    return SimpleNamespace(recentProgress=recent, lastProgress=recent[-1] if recent else None)


RAN = {"addBatch": 5, "triggerExecution": 9}


def test_a_batch_is_recorded_when_spark_has_reported_it() -> None:
    assert not is_recorded(_query(), 0)
    assert not is_recorded(_query((6, RAN)), 7)
    assert is_recorded(_query((6, RAN), (7, RAN)), 7)


def test_the_next_batch_is_read_without_the_reports_before_it() -> None:
    latest = SimpleNamespace(batchId=7, durationMs=RAN)
    query: Any = SimpleNamespace(lastProgress=latest)  # and no `recentProgress`
    assert batches_after(query, 6) == [latest]
    assert batches_after(query, 7) == []


def test_batches_between_two_looks_are_all_read() -> None:
    waits = (8, {"triggerExecution": 1})
    for reports in ([(6, RAN), (7, RAN)], [(6, RAN), (7, RAN), waits]):
        assert [each.batchId for each in batches_after(_query(*reports), 5)] == [6, 7]
    assert [each.batchId for each in batches_after(_query((6, RAN), (7, RAN), waits), 6)] == [7]
    assert batches_after(_query((6, RAN), (7, RAN), waits), 7) == []


def test_ticks_are_not_rows_of_events() -> None:
    described = [
        ("FileStreamSource[file:/data/events]", 7),
        ("FileStreamSource[file:/checkpoint/holdfast-ticks]", 1),
        ("FileStreamSource[file:/data/ticks]", 20),
    ]
    sources = [SimpleNamespace(description=name, numInputRows=rows) for name, rows in described]
    report: Any = SimpleNamespace(sources=sources, numInputRows=28)
    assert (event_rows(report), tick_rows(report)) == (27, 1)


def test_the_report_of_a_query_that_waits_is_of_the_batch_to_come() -> None:
    assert not is_recorded(_query((6, RAN), (7, {"triggerExecution": 1})), 7)
    assert is_recorded(_query(*[(8, {"triggerExecution": 1})] * 3), 7)


def test_times_of_the_state_are_those_of_a_mean_partition() -> None:
    details = {"rocksdbCommitFileSyncLatencyMs": 2_000, "rocksdbLoadLatencyMs": 600}
    operator = SimpleNamespace(commitTimeMs=4_000, numShufflePartitions=4, customMetrics=details)
    phases = {"walCommit": 50, "addBatch": 9_000, "commitOffsets": 150}
    progress: Any = SimpleNamespace(durationMs=phases, stateOperators=[operator])
    assert checkpoint_phases(progress) == pytest.approx(
        {"plan": 0.05, "load": 0.15, "state": 1.0, "upload": 0.5, "commit": 0.15, "total": 1.2}
    )


def test_a_batch_without_state_has_a_checkpoint() -> None:
    progress: Any = SimpleNamespace(durationMs={"walCommit": 50}, stateOperators=[])
    assert checkpoint_phases(progress)["total"] == pytest.approx(0.05)
