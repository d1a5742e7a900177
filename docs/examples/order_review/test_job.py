"""Tests of the job: its decisions, its rules, its keys, its replays. They need no database."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from job import HERE, SINK, decisions, events
from pyspark.sql import SparkSession

from holdfast.testing import FakeOutbox, check

POLICY = json.loads((HERE / "policy.json").read_text())
CHANGED = [
    *POLICY,
    {"version": "later", "effective_from": "2026-11-03T00:00:00Z", "limit_minor": 20000},
]

Decide = Callable[..., pa.Table]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def decide(spark: SparkSession, tmp_path: Path) -> Decide:
    def run(*lines: dict[str, Any] | str, policy: list[dict[str, Any]] = POLICY) -> pa.Table:
        """What the job decides of a file, in whatever order Spark reads it."""
        texts = (each if isinstance(each, str) else json.dumps(each) for each in lines)
        (tmp_path / "events.json").write_text("\n".join(texts))
        batch = events(spark.read, str(tmp_path))
        return check(lambda orders: decisions(orders, policy), batch).sort_by("occurred_at")

    return run


def event(number: int, type_: str, amount_minor: int, **changes: Any) -> dict[str, Any]:
    """An event of order o_1 on 2 November."""
    return {
        "event_id": f"e{number}",
        "order_id": "o_1",
        "type": type_,
        "amount_minor": amount_minor,
        "currency": "USD",
        "occurred_at": f"2026-11-02T09:{number:02}:00Z",
        **changes,
    }


def test_order_above_the_limit_is_held_until_it_is_below(decide: Decide) -> None:
    decided = decide(event(1, "placed", 50001), event(2, "amended", 50000))
    assert decided["type"].to_pylist() == ["order_review.hold", "order_review.release"]


def test_approved_order_is_released_and_a_small_one_is_nobodys_business(decide: Decide) -> None:
    decided = decide(event(1, "placed", 50000), event(2, "approved", 90000))
    assert decided["type"].to_pylist() == ["order_review.release"]


def test_limit_is_that_of_the_events_time(decide: Decide) -> None:
    later = event(2, "placed", 30000, occurred_at="2026-11-03T00:00:00Z")
    [decision] = decide(event(1, "placed", 30000), later, policy=CHANGED).to_pylist()
    assert decision["data"]["policy_version"] == "later"
    assert decision["key"] == ["order_review/v1", "o_1", "hold", "e2"]


def test_order_is_held_once_whatever_is_repeated(decide: Decide) -> None:
    outbox = FakeOutbox()
    sink = outbox.sink(**SINK)
    placed = decide(event(1, "placed", 90000))
    sink(placed, 0)
    sink(placed, 0)
    sink(decide(event(2, "amended", 95000)), 1)
    assert [(each.type, each.sequence) for each in outbox.entries] == [("order_review.hold", 1)]
    assert [each.cause for each in outbox.suppressed] == ["repeated"]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("no event", "unreadable"),
        (event(1, "placed", 90000, event_id=None), "no_id"),
        (event(1, "placed", 90000, currency="EUR"), "other_currency"),
        (event(1, "placed", -1), "no_amount"),
        (event(1, "placed", 90000, occurred_at="2025-01-01T00:00:00Z"), "no_policy"),
    ],
)
def test_bad_event_is_refused_by_its_rule(decide: Decide, line: Any, rule: str) -> None:
    [decision] = decide(line).to_pylist()
    assert decision["rejected"] == rule


def test_quarantine_keeps_a_refused_event_as_it_came(decide: Decide) -> None:
    outbox = FakeOutbox()
    outbox.sink(**SINK)(decide(event(1, "placed", 90000, currency="EUR"), "this is no event"), 0)
    kept = {each.rule: each.row for each in outbox.quarantined}
    assert kept["unreadable"] == "this is no event"
    assert json.loads(kept["other_currency"])["currency"] == "EUR"
