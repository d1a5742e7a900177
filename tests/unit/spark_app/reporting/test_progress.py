"""The line of a batch, and the page that explains its fields."""

import re
from types import SimpleNamespace
from typing import Any

from spark_app.reporting.batch_counts import BatchCounts, FinishedBatch
from spark_app.reporting.progress import line
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
    assert [pair.partition("=")[0] for pair in example.split()] == explained[:-1]
