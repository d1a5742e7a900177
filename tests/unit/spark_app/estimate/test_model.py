"""The estimate: exact for round unit costs, monotone in what arrives."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark_app.estimate.model import BUSY_MAX, Estimate, Load, estimate
from holdfast.spark_app.estimate.units import Units

ROUND = Units(
    start_s=20,
    first_batch_s=5,
    restore_s_per_million_ids=4,
    replay_s_per_million_events=20,
    batch_s=1,
    batch_s_per_million_events=10,
    state_bytes_per_id=20,
    state_bytes_per_merchant=50,
    changelog_bytes_per_event=16,
    changelog_bytes_per_merchant=10,
    log_bytes_per_batch=1_000,
    java_bytes=1e9,
    java_bytes_per_million_ids=1e8,
    python_bytes=5e8,
    python_bytes_per_million_ids=5e7,
)

rates = st.floats(0.1, 50_000)
merchants = st.integers(1, 1_000_000)


def test_example_with_round_unit_costs() -> None:
    found = estimate(Load(1_000, 10_000, ids_open=2_000_000, interval_s=15), ROUND)
    assert found.batch_s == pytest.approx(1 + 0.015 * 10)
    assert found.busy == pytest.approx(1.15 / 15)
    assert found.state_bytes == found.snapshot_bytes == 2_000_000 * 20 + 10_000 * 50
    # 70 batches while an id is kept: two levels of segments, seven of eight written again in each.
    assert found.changelog_bytes == pytest.approx(15_000 * 2.75 * 16 + 10_000 * 10)
    per_second = (760_000 + 1_000) / 15 + 40_500_000 / 150
    assert found.written_bytes_per_second == pytest.approx(per_second)
    assert found.checkpoint_bytes == pytest.approx(100 * 761_000 + 11 * 40_500_000)
    assert (found.java_bytes, found.python_bytes) == (1.2e9, 6e8)
    terms = found.recovery
    assert (terms.detection_s, terms.restart_s) == (10, 25)
    assert (terms.restore_s, terms.reprocess_s) == pytest.approx((8, 0.3))
    assert terms.total_s == pytest.approx(43.3)
    # A hundredth of each second is work: what arrived in 43.3 s takes that of 43.3 / 0.99 s.
    assert found.caught_up_s == pytest.approx(43.3 * 0.01 / 0.99)
    assert found.warnings == ()


def test_ids_are_those_of_a_window_its_cutoff_and_the_delay() -> None:
    assert Load(4_000, 1).ids == 4_000 * (900 + 120 + 30)


def test_recommended_interval_is_the_shortest_that_leaves_time() -> None:
    # A batch costs 1 s: a fifth of 5 s. With 60,000 events a second 6 s of 10 s are work.
    assert estimate(Load(1, 1), ROUND).recommended_interval_s == 5
    assert estimate(Load(40_000, 1), ROUND).recommended_interval_s == 5
    assert estimate(Load(60_000, 1), ROUND).recommended_interval_s == 10


def _sizes(found: Estimate) -> dict[str, float]:
    return {
        "batch": found.batch_s,
        "state": found.state_bytes,
        "changelog": found.changelog_bytes,
        "written": found.written_bytes_per_second,
        "kept": found.checkpoint_bytes,
        "java": found.java_bytes,
        "python": found.python_bytes,
        "recovery": found.recovery.total_s,
        "caught up": math.inf if found.caught_up_s is None else found.caught_up_s,
    }


@given(rates, merchants, st.floats(1, 4), st.sampled_from([1.0, 10.0, 60.0]))
def test_more_events_never_take_less(
    rate: float, count: int, more: float, interval_s: float
) -> None:
    load = Load(rate, count, interval_s=interval_s)
    less = _sizes(estimate(load))
    greater = _sizes(estimate(replace(load, events_per_second=rate * more)))
    assert [name for name in less if greater[name] < less[name] * (1 - 1e-9)] == []


@given(rates, merchants, st.integers(0, 1_000_000))
def test_more_merchants_never_take_less(rate: float, count: int, more: int) -> None:
    load = Load(rate, count, interval_s=10)
    less = _sizes(estimate(load))
    greater = _sizes(estimate(replace(load, merchants=count + more)))
    assert [name for name in less if greater[name] < less[name] * (1 - 1e-9)] == []


@given(rates, merchants, st.floats(1, 4))
def test_more_events_never_recommend_a_shorter_interval(
    rate: float, count: int, more: float
) -> None:
    fewer, greater = (
        estimate(Load(each, count)).recommended_interval_s or math.inf
        for each in (rate, rate * more)
    )
    assert fewer <= greater


@given(rates, merchants)
def test_recommended_interval_leaves_the_job_time(rate: float, count: int) -> None:
    found = estimate(Load(rate, count))
    if found.recommended_interval_s is None:
        assert found.warnings
    else:
        assert found.interval_s == found.recommended_interval_s
        assert found.busy <= BUSY_MAX
        assert estimate(Load(rate, count, interval_s=found.interval_s)) == found
        assert found.warnings == ()


@given(rates, st.floats(1, 1_000), st.floats(1, 3))
def test_a_longer_interval_repeats_more(rate: float, interval_s: float, more: float) -> None:
    short, longer = (
        estimate(Load(rate, 1, interval_s=each)).recovery.reprocess_s
        for each in (interval_s, interval_s * more)
    )
    assert short <= longer


def test_a_rate_that_no_interval_can_take_is_said() -> None:
    found = estimate(Load(150_000, 1), ROUND)
    assert found.recommended_interval_s is None
    assert found.busy > 1
    assert found.caught_up_s is None
    assert len(found.warnings) == 2


def test_ids_of_a_group_have_a_limit() -> None:
    load = Load(1, 1, ids_open=91_000_000, key_groups=1)
    assert any("at least 2 groups" in words for words in estimate(load, ROUND).warnings)
    enough = estimate(replace(load, key_groups=2), ROUND)
    assert not any("groups" in words for words in enough.warnings)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"events_per_second": 0}, "0 events per second"),
        ({"events_per_second": -1}, "-1 events per second"),
        ({"events_per_second": math.nan}, "nan events per second"),
        ({"events_per_second": math.inf}, "inf events per second"),
        ({"merchants": 0}, "0 merchants"),
        ({"ids_open": -1}, "-1 open ids"),
        ({"interval_s": 0.0}, "an interval of 0 s"),
        ({"interval_s": 3_601.0}, "an interval of 3601 s"),
        ({"detection_s": -1}, "a detection of -1 s"),
        ({"ids_open": 10, "interval_s": 60.0}, "10 open ids are fewer than the 60,000 events"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Load(**{"events_per_second": 1_000, "merchants": 1, **changes})  # type: ignore[arg-type]
