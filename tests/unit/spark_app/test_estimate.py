"""`holdfast job estimate`: its model, its unit costs, what it prints and refuses."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.exits import ExitCode
from holdfast.spark_app.estimate import (
    BUSY_MAX,
    COMMAND,
    DATE,
    MEASURED,
    RANGE,
    UNKNOWN,
    Estimate,
    Load,
    Units,
    estimate,
)
from tests.benchmarks.common.tables import markdown
from tests.benchmarks.operator import recovery
from tests.support.command import holdfast

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
    costs = estimate(Load(1_000, 10_000, ids_open=2_000_000, interval_s=15), ROUND)
    assert costs.batch_s == pytest.approx(1 + 0.015 * 10)
    assert costs.busy == pytest.approx(1.15 / 15)
    assert costs.state_bytes == costs.snapshot_bytes == 2_000_000 * 20 + 10_000 * 50
    # 70 batches while an id is kept: two levels of segments, seven of eight written again in each.
    assert costs.changelog_bytes == pytest.approx(15_000 * 2.75 * 16 + 10_000 * 10)
    per_second = (760_000 + 1_000) / 15 + 40_500_000 / 150
    assert costs.written_bytes_per_second == pytest.approx(per_second)
    assert costs.checkpoint_bytes == pytest.approx(100 * 761_000 + 11 * 40_500_000)
    assert (costs.java_bytes, costs.python_bytes) == (1.2e9, 6e8)
    terms = costs.recovery
    assert (terms.detection_s, terms.restart_s) == (10, 25)
    assert (terms.restore_s, terms.reprocess_s) == pytest.approx((8, 0.3))
    assert terms.total_s == pytest.approx(43.3)
    # A hundredth of each second is work: what arrived in 43.3 s takes that of 43.3 / 0.99 s.
    assert costs.caught_up_s == pytest.approx(43.3 * 0.01 / 0.99)
    assert costs.warnings == ()


def test_ids_are_those_of_a_window_its_cutoff_and_the_delay() -> None:
    assert Load(4_000, 1).ids == 4_000 * (900 + 120 + 30)


def test_recommended_interval_is_the_shortest_that_leaves_time() -> None:
    # A batch costs 1 s: a fifth of 5 s. With 60,000 events a second 6 s of 10 s are work.
    assert estimate(Load(1, 1), ROUND).recommended_interval_s == 5
    assert estimate(Load(40_000, 1), ROUND).recommended_interval_s == 5
    assert estimate(Load(60_000, 1), ROUND).recommended_interval_s == 10


def _sizes(costs: Estimate) -> dict[str, float]:
    return {
        "batch": costs.batch_s,
        "state": costs.state_bytes,
        "changelog": costs.changelog_bytes,
        "written": costs.written_bytes_per_second,
        "kept": costs.checkpoint_bytes,
        "java": costs.java_bytes,
        "python": costs.python_bytes,
        "recovery": costs.recovery.total_s,
        "caught up": math.inf if costs.caught_up_s is None else costs.caught_up_s,
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
    costs = estimate(Load(rate, count))
    if costs.recommended_interval_s is None:
        assert costs.warnings
    else:
        assert costs.interval_s == costs.recommended_interval_s
        assert costs.busy <= BUSY_MAX
        assert estimate(Load(rate, count, interval_s=costs.interval_s)) == costs
        assert costs.warnings == ()


@given(rates, st.floats(1, 1_000), st.floats(1, 3))
def test_a_longer_interval_repeats_more(rate: float, interval_s: float, more: float) -> None:
    short, longer = (
        estimate(Load(rate, 1, interval_s=each)).recovery.reprocess_s
        for each in (interval_s, interval_s * more)
    )
    assert short <= longer


def test_rate_too_high_for_any_interval_is_reported() -> None:
    costs = estimate(Load(150_000, 1), ROUND)
    assert costs.recommended_interval_s is None
    assert costs.busy > 1
    assert costs.caught_up_s is None
    assert len(costs.warnings) == 2


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


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(recovery.REPORT.read_text())
    return data


def test_unit_costs_are_those_of_the_report(report: dict[str, Any]) -> None:
    assert asdict(MEASURED) == report["units"]
    assert (report["command"], report["date"]) == (COMMAND, DATE)


def test_measured_range_is_that_of_the_report(report: dict[str, Any]) -> None:
    sweep, sizes = report["tradeoff"], report["restore"]
    longest = max(point["interval_s"] for point in sweep["points"])
    assert longest == RANGE.interval_s
    assert sweep["events_per_second"] * longest == RANGE.events_per_batch
    assert max(each["open_ids"] for each in sizes) == pytest.approx(RANGE.ids, rel=0.05)
    assert max(each["merchants"] for each in sizes) == pytest.approx(RANGE.merchants, rel=0.05)


def test_reported_unit_costs_match_the_measurements(report: dict[str, Any]) -> None:
    # The measurements in the report are rounded to four digits.
    assert recovery.units(report) == pytest.approx(report["units"], rel=0.02)


def test_tables_of_the_page_are_those_of_the_report(report: dict[str, Any]) -> None:
    page = recovery.PAGE.read_text()
    for name, rows in recovery.tables(report).items():
        assert f"<!-- {name} -->\n{markdown(rows)}\n<!-- end -->" in page


def test_plot_says_where_it_comes_from(report: dict[str, Any]) -> None:
    plot = recovery.PLOT.read_text()
    commits = {commit[:12] for commit in report["commits"].values()}
    origin = (COMMAND, DATE, report["machine"]["model"], *commits)
    assert [words for words in origin if words not in plot] == []
    assert len(plot) < 100_000


def test_example_of_the_page_is_what_the_command_prints() -> None:
    page = recovery.PAGE.read_text()
    _, _, block = page.partition("```\n$ holdfast ")
    command, _, shown = block.partition("```")[0].partition("\n")
    done = holdfast(*command.split(), process=False)
    assert done.stdout == shown


LOAD = ("--events-per-second", "4000", "--merchants", "200000")


def _estimated(*words: str) -> subprocess.CompletedProcess[str]:
    return holdfast("job", "estimate", *words, process=False)


def _json(*words: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    done = _estimated(*words, "--json")
    assert done.returncode == code, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_json_has_every_figure_of_the_model() -> None:
    data = _json(*LOAD, "--interval", "30s", "--detection", "5s")
    model = estimate(Load(4_000, 200_000, interval_s=30, detection_s=5))
    assert data["batch_s"] == model.batch_s
    assert data["checkpoint_bytes"] == model.checkpoint_bytes
    assert data["recovery"]["detection_s"] == 5
    assert data["recovery"]["total_s"] == model.recovery.total_s
    assert data["ids_open"] == 4_000 * 1_050
    assert data["measured"]["command"] == COMMAND
    assert tuple(data["not_known"]) == model.not_known


def test_options_reach_the_model() -> None:
    data = _json(*LOAD, "--watermark-delay", "1m", "--late-cutoff", "5m")
    assert data["ids_open"] == 4_000 * (900 + 300 + 60)
    assert _json(*LOAD, "--ids-open", "1000000")["ids_open"] == 1_000_000


def test_text_names_the_terms_and_what_is_not_known() -> None:
    done = _estimated(*LOAD)
    assert done.returncode == ExitCode.OK
    lines = {line[:15].strip(): line for line in done.stdout.splitlines()}
    assert {"interval", "state", "checkpoint", "memory", "recovery time"} <= lines.keys()
    for term in ("detection", "restart", "restore", "reprocess"):
        assert term in lines["recovery time"]
    assert all(words in done.stdout for words in UNKNOWN)


def test_only_what_the_options_leave_open_is_not_known() -> None:
    unsaid = ("the detection", "the open ids", "key groups")
    for words, expected in (
        ((), {"the detection", "the open ids"}),
        (("--detection", "5s"), {"the open ids"}),
        (("--detection", "5s", "--ids-open", "1000000"), set()),
        (("--detection", "5s", "--ids-open", "1000000", "--key-groups", "64"), {"key groups"}),
    ):
        data = _json(*LOAD, *words)["not_known"]
        assert {name for name in unsaid if any(name in each for each in data)} == expected
        assert set(UNKNOWN) <= set(data)


def test_load_beyond_the_measured_range_is_only_a_warning() -> None:
    inside = ("--events-per-second", "3000", "--merchants", "5000")
    assert _json(*inside)["extrapolated"] == []
    assert "warning" not in _estimated(*inside).stdout
    beyond = ("--ids-open", "9000000", "--merchants", "300000", "--interval", "10m")
    data = _json(*inside, *beyond)["extrapolated"]
    assert [each.partition(" are ")[0] for each in data[:3]] == [
        "9,000,000 ids in the state",
        "300,000 merchants",
        "1,800,000 events in a batch",
    ]
    assert "an interval of 600 s" in data[3]
    done = _estimated(*inside, *beyond)
    assert (done.returncode, done.stdout.count("warning  ")) == (ExitCode.OK, 4)


def test_a_load_that_does_not_fit_is_exit_code_4() -> None:
    data = _json("--events-per-second", "1000000", "--merchants", "1", code=ExitCode.DEGRADED)
    assert data["recommended_interval_s"] is None
    assert data["caught_up_s"] is None
    done = _estimated(*LOAD, "--interval", "100ms")
    assert done.returncode == ExitCode.DEGRADED
    assert "falls behind" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--events-per-second", "0"),
        ("--events-per-second", "nan"),
        ("--merchants", "0"),
        ("--ids-open", "-1"),
        ("--ids-open", "1"),
        ("--interval", "soon"),
        ("--interval", "2h"),
        ("--detection", "1d"),
        ("--key-groups", "0"),
    ],
)
def test_nonsense_is_refused(words: tuple[str, str]) -> None:
    done = _estimated(*LOAD, "--interval", "10s", *words)
    assert done.returncode == ExitCode.USAGE
    assert not done.stdout


def test_nothing_of_spark_is_imported() -> None:
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-X",
                "importtime",
                "-m",
                "holdfast.dispatcher.cli.main",
                "job",
                "estimate",
            ),
            *LOAD,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "holdfast.spark_app.estimate" in imported
    assert imported.isdisjoint({"pyspark", "pyarrow", "numpy"})
