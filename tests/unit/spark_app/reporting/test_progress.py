"""The line of a batch, and the page that explains its fields."""

import re
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from holdfast.sink.transaction.ledger import Counts, Written
from holdfast.spark_app.reporting.batch_counts import BatchCounts, FinishedBatch
from holdfast.spark_app.reporting.metrics import Metrics
from holdfast.spark_app.reporting.progress import Progress, line
from tests.support.pages import ROOT

PAGE = ROOT / "docs/spark/exposure-job.md"


def _line() -> list[tuple[str, str]]:
    """The pairs of a line with every field."""
    ticks = SimpleNamespace(description="FileStreamSource[/checkpoint/holdfast-ticks]")
    ticks.numInputRows = 1
    progress: Any = SimpleNamespace(
        batchId=7,
        sources=[ticks],
        numInputRows=1001,
        eventTime={"watermark": "2026-11-02T12:14:30.000Z"},
        timestamp="2026-11-02T12:11:00.000Z",
        durationMs={"triggerExecution": 1612},
    )
    counts = SimpleNamespace(entries=2, suppressed=0, duplicates=0, quarantined=1)
    outcome: Any = type("Written", (SimpleNamespace,), {})(counts=counts)
    said = line(progress, FinishedBatch(outcome, BatchCounts()))
    return [(name, value) for name, _, value in (pair.partition("=") for pair in said.split())]


def test_page_explains_every_field_of_the_line_in_its_order() -> None:
    section = PAGE.read_text().partition("## The line of a batch")[2]
    explained = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert explained == [name for name, _ in _line()]
    example = next(row for row in section.splitlines() if row.startswith("    batch="))
    assert [pair.partition("=")[0] for pair in example.split()] == explained[:-2]


def test_watermark_ahead_of_the_clock_is_told_and_its_late_events_counted() -> None:
    ahead, metrics = "210s", Metrics("payouts")
    assert dict(_line())["ahead"] == ahead
    done = FinishedBatch(WRITTEN, BatchCounts(late=Counter(late=3, duplicate=2)))
    query: Any = SimpleNamespace(lastProgress=_report(1, "2026-11-02T12:11:00.000Z"))
    batches: Any = SimpleNamespace(take=lambda _: done)
    shown = Progress(query, batches, metrics)
    shown._shown = 0
    shown.show()
    query.lastProgress = _report(2, "2026-11-02T12:15:00.000Z")
    assert _sample(metrics, "watermark_ahead_seconds") == 210
    shown.show()
    assert _sample(metrics, "watermark_ahead_seconds") == 0
    assert _sample(metrics, "late_ahead_rows_total") == 3, "those of the first batch alone"


WRITTEN = Written(
    "payouts", 1, 1, datetime(2026, 11, 2, 12, 11, tzinfo=UTC), Counts(5, 0, 0, 0, 0, 0)
)


def _report(batch_id: int, started: str) -> Any:
    return SimpleNamespace(
        batchId=batch_id,
        sources=[],
        numInputRows=5,
        eventTime={"watermark": "2026-11-02T12:14:30.000Z"},
        durationMs={"triggerExecution": 1, "addBatch": 1},
        stateOperators=[],
        timestamp=started,
    )


def _sample(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"holdfast_job_{name}", {"stream": "payouts"})
