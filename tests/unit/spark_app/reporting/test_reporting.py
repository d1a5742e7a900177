"""The lines and metrics of a batch, and the page that explains its fields."""

import re
import socket
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client import CollectorRegistry, Metric

from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.rows.outcome import Counts, Replayed, Written
from holdfast.spark_app.lifecycle.failure import Cause
from holdfast.spark_app.reporting.batch_counts import BatchCounts, FinishedBatch
from holdfast.spark_app.reporting.metrics import Metrics, State, served
from holdfast.spark_app.reporting.progress import Progress, line
from holdfast.spark_app.reporting.query_progress import (
    batches_after,
    checkpoint_phases,
    event_rows,
    is_recorded,
    tick_rows,
)
from tests.support.documents.pages import ROOT

BEFORE_SINK = BatchCounts(
    windows=7, late=Counter(late=2, duplicate=1), quarantined=Counter(malformed=3)
)
COUNTS = Counts(rows=11, entries=4, duplicates=2, differing=0, suppressed=1, quarantined=4)
_TABLE = re.compile(r"^\| `(holdfast_job_\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)


def _outcome(kind: type[Written] | type[Replayed], batch_id: int = 0) -> Written | Replayed:
    return kind(
        stream="payouts",
        batch_id=batch_id,
        batch_no=1,
        written_at=datetime(2026, 1, 1, tzinfo=UTC),
        counts=COUNTS,
    )


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    registry: CollectorRegistry = metrics.registry
    return registry.get_sample_value(f"holdfast_job_{name}", {"stream": "payouts", **labels})


def test_every_metric_is_documented_and_exists() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    reply = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in _TABLE.findall(text)
    }
    metrics = Metrics("payouts")
    made = {}
    for collector, names in metrics.registry._collector_to_names.items():
        [family] = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name in {*names, family.name}
        made[name] = (family.type, set(collector._labelnames) - {"stream"})  # type: ignore[attr-defined]
    assert reply == made


def test_replayed_batches_are_counted_separately() -> None:
    metrics = Metrics("payouts")
    metrics.done(FinishedBatch(_outcome(Written), BEFORE_SINK))
    metrics.done(FinishedBatch(_outcome(Replayed), BEFORE_SINK))
    assert _value(metrics, "batches_total", outcome="written") == 1
    assert _value(metrics, "batches_total", outcome="replayed") == 1
    assert _value(metrics, "entries_total") == 4
    assert _value(metrics, "suppressed_total") == 1
    assert _value(metrics, "duplicate_keys_total") == 2
    assert _value(metrics, "windows_total") == 7
    assert _value(metrics, "late_rows_total", reason="late") == 2
    assert _value(metrics, "late_rows_total", reason="duplicate") == 1
    assert _value(metrics, "quarantined_rows_total", reason="malformed") == 3
    assert _value(metrics, "quarantined_rows_total", reason="decision") == 1


def test_age_of_the_last_commit_grows_until_a_batch_is_recorded() -> None:
    metrics = Metrics("payouts")
    metrics._committed -= 400
    age = _value(metrics, "last_commit_age_seconds")
    assert age is not None
    assert 400 <= age < 430
    report: Any = SimpleNamespace(
        timestamp="2026-11-25T03:00:00.000Z",
        numInputRows=3,
        durationMs={"walCommit": 50, "commitOffsets": 250},
        eventTime={},
        stateOperators=[],
        sources=[],
    )
    metrics.recorded(report)
    age = _value(metrics, "last_commit_age_seconds")
    assert age is not None
    assert age < 30
    total = _value(metrics, "checkpoint_duration_seconds_sum", phase="total")
    assert total == pytest.approx(0.3)


def test_a_restart_is_counted_by_its_cause_and_shows_as_waiting() -> None:
    metrics = Metrics("payouts")
    metrics.enter(State.RUNNING)
    metrics.restarting(Cause.JAVA)
    assert {cause: _value(metrics, "restarts_total", cause=cause) for cause in Cause} == {
        cause: float(cause is Cause.JAVA) for cause in Cause
    }
    assert {state: _value(metrics, "state", state=state) for state in State} == {
        state: float(state is State.WAITING) for state in State
    }


def test_metrics_are_served_while_the_block_runs() -> None:
    port = free_port()
    with served(Metrics("payouts"), "127.0.0.1", port):
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert 'holdfast_job_state{state="starting",stream="payouts"} 1.0' in text
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30)


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_unusable_listen_address_is_explained(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with (
            pytest.raises(CommandError, match="Nothing was started") as raised,
            served(Metrics("payouts"), host, port),
        ):
            raise AssertionError
    assert raised.value.exit_code == ExitCode.USAGE
    assert f"{host}:{port}" in str(raised.value)


def test_port_0_serves_nothing() -> None:
    own = psutil.Process()
    before = own.net_connections()
    with served(Metrics("payouts"), "127.0.0.1", 0):
        assert own.net_connections() == before


def test_every_counter_exists_before_it_counts() -> None:
    metrics = Metrics("payouts")
    counters = [family for family in metrics.registry.collect() if family.type == "counter"]
    assert len(counters) == 12
    assert all(family.samples for family in counters)
    assert {reason for family in counters for reason in _reasons(family)} >= {
        *("late", "future_dated", "duplicate", "settled", "malformed")
    }


def _reasons(family: Metric) -> list[str]:
    return [sample.labels.get("reason", "") for sample in family.samples]


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
    text = line(progress, FinishedBatch(outcome, BatchCounts()))
    return [(name, value) for name, _, value in (pair.partition("=") for pair in text.split())]


def test_page_explains_every_field_of_the_line_in_its_order() -> None:
    section = PAGE.read_text().partition("## The line of a batch")[2]
    explained = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert explained == [name for name, _ in _line()]
    example = next(row for row in section.splitlines() if row.startswith("    batch="))
    assert [pair.partition("=")[0] for pair in example.split()] == explained[:-2]


def test_watermark_ahead_of_the_clock_is_reported_with_late_events() -> None:
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


def test_report_of_a_waiting_query_is_of_the_next_batch() -> None:
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
