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

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.transaction.ledger import Counts, Replayed, Written
from holdfast.spark_app.lifecycle.failure import Cause
from holdfast.spark_app.reporting.batch_counts import BatchCounts, FinishedBatch
from holdfast.spark_app.reporting.metrics import Metrics, State, served
from tests.support.pages import ROOT

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


def test_every_metric_is_told_and_every_metric_that_is_told_exists() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    told = {
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
    assert told == made


def test_a_written_batch_is_counted_and_a_replayed_one_only_as_such() -> None:
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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_metrics_are_served_while_the_block_runs() -> None:
    port = _free_port()
    with served(Metrics("payouts"), "127.0.0.1", port):
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert 'holdfast_job_state{state="starting",stream="payouts"} 1.0' in text
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30)


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_where_nobody_can_listen_is_said_in_words(host: str) -> None:
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


def test_every_counter_is_there_before_it_counts() -> None:
    metrics = Metrics("payouts")
    counters = [family for family in metrics.registry.collect() if family.type == "counter"]
    assert len(counters) == 11
    assert all(family.samples for family in counters)
    assert {reason for family in counters for reason in _reasons(family)} >= {
        *("late", "future_dated", "duplicate", "settled", "malformed")
    }


def _reasons(family: Metric) -> list[str]:
    return [sample.labels.get("reason", "") for sample in family.samples]
