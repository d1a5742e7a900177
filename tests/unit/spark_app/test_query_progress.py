from types import SimpleNamespace
from typing import Any

from spark_app.reporting.query_progress import event_rows, is_recorded, tick_rows


def _query(*reports: tuple[int, dict[str, int]]) -> Any:
    """A query with the reports of Spark that count here: batch ids, and phases of a batch."""
    recent = [SimpleNamespace(batchId=number, durationMs=phases) for number, phases in reports]
    return SimpleNamespace(recentProgress=recent, lastProgress=recent[-1] if recent else None)


RAN = {"addBatch": 5, "triggerExecution": 9}


def test_a_batch_is_recorded_when_spark_has_reported_it() -> None:
    assert not is_recorded(_query(), 0)
    assert not is_recorded(_query((6, RAN)), 7)
    assert is_recorded(_query((6, RAN), (7, RAN)), 7)


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
