"""The unit costs, the page and the plot are those of the committed report."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from holdfast.spark_app.estimate.units import COMMAND, DATE, MEASURED, RANGE
from tests.benchmarks.operator import recovery
from tests.support.command import holdfast


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(recovery.REPORT.read_text())
    return found


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


def test_unit_costs_of_the_report_are_those_of_its_measurements(report: dict[str, Any]) -> None:
    # The measurements in the report are rounded to four digits.
    assert recovery.units(report) == pytest.approx(report["units"], rel=0.02)


def test_tables_of_the_page_are_those_of_the_report(report: dict[str, Any]) -> None:
    page = recovery.PAGE.read_text()
    for name, table in recovery.tables(report).items():
        assert f"<!-- {name} -->\n{table}\n<!-- end -->" in page


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
