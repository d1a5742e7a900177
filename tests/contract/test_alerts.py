"""Alerts and dashboards name only what exists; alerts fire when they should."""

import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest

from holdfast.deploy.grafana.catalogue import DASHBOARDS, LEFT_OUT
from holdfast.deploy.grafana.render import described, rendered
from holdfast.deploy.local.stack.panels import Dashboard, Panel, alert, dashboards
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import SECRET
from tests.support.job.decisions import Decisions
from tests.support.monitoring.prometheus import MISSING, program
from tests.support.monitoring.rules import (
    EVERYWHERE,
    ROOT,
    RULES,
    all_rules,
    labels_in,
    metric_labels,
    metrics_in,
)

ANSWERED = {ExitCode.OK, ExitCode.NOTHING_MATCHED, ExitCode.DEGRADED}

PLAYED = Path(__file__).parent / "vectors" / "alerts.yml"


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in all_rules()])
def test_alert_names_only_existing_metrics(rule: dict[str, Any]) -> None:
    known, notes = metric_labels(), rule["annotations"]
    metrics = metrics_in(rule["expr"])
    assert metrics
    assert metrics <= known.keys()
    used = labels_in(f"{rule['expr']} {notes}")
    assert used <= EVERYWHERE.union(*(known[metric] for metric in metrics))
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert notes.keys() == {"summary", "description", "run", "runbook"}
    assert (ROOT / notes["runbook"].partition("#")[0]).is_file()


def test_command_of_each_alert_answers(dsn: str) -> None:
    """On a database with the stream and the endpoint that the labels name."""
    with Decisions(dsn, "payouts") as decisions:
        decisions.write("m_1")
    address = ("--url", "http://127.0.0.1:9", "--allow-cidr", "127.0.0.1/32")
    add = ("endpoint", "add", "payouts", *address, "--secret-ref", f"env:{SECRET}")
    assert holdfast(*add, dsn=dsn).returncode == ExitCode.OK
    secret = {SECRET: f"whsec_{b64encode(bytes(32)).decode()}"}
    for command in sorted({rule["annotations"]["run"] for rule in all_rules()}):
        _, *words = re.sub(r"{{ \$labels\.(endpoint|stream) }}", "payouts", command).split()
        asked = words[:2] == ["endpoint", "test"]
        answer = holdfast(*words, *["--yes"] * asked, dsn=dsn, environment=secret)
        # Nobody listens there, which is what `endpoint test` is to say.
        expected = {ExitCode.FAILED} if asked else ANSWERED
        assert answer.returncode in expected, f"{command}: {answer.stdout}{answer.stderr}"
        assert answer.stdout or answer.returncode == ExitCode.NOTHING_MATCHED, answer.stderr
        assert "Usage:" not in answer.stdout, f"{command} prints its help"


@pytest.fixture
def promtool(tmp_path: Path) -> Callable[..., str]:
    """Run promtool in a folder with the rules and what plays them; returns what it says."""
    program_path = program("promtool")
    if program_path is None:
        pytest.skip(MISSING.format("promtool"))
    for path in (RULES, PLAYED):
        shutil.copy(path, tmp_path)

    def run(*words: str) -> str:
        done = subprocess.run(
            [program_path, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_rules_are_well_formed(promtool: Callable[..., str]) -> None:
    text = promtool("check", "rules", RULES.name)
    assert f"{len(list(all_rules()))} rules found" in text


def test_alerts_fire_when_they_should(promtool: Callable[..., str]) -> None:
    """By `vectors/alerts.yml`: what is seen each minute, and which alerts fire when."""
    assert "SUCCESS" in promtool("test", "rules", PLAYED.name)


FOLDER = ROOT / "deploy" / "grafana"
PICTURES = ROOT / "docs" / "operators" / "dashboards"
PICTURES_BYTES_MAX = 150_000
_NUMBER = re.compile(r"(?<=[<>=] )[\d.e]+")
UNITS = {"s", "short", "reqps", "ops", "rowsps", "bytes"}

PANELS = [
    pytest.param(panel, id=f"{dashboard.name}: {panel.title}")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
]


def _graphs(dashboard: Dashboard) -> list[dict[str, Any]]:
    """The panels of the committed file."""
    data = json.loads((FOLDER / f"{dashboard.name}.json").read_text())["panels"]
    return [each for each in data if each["type"] != "row"]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_committed_file_is_what_is_generated(dashboard: Dashboard) -> None:
    committed: Path = FOLDER / f"{dashboard.name}.json"
    assert committed.read_text() == rendered(dashboard), "run python -m holdfast.deploy.grafana"


def test_stack_page_reads_the_files_and_is_the_only_one() -> None:
    assert dashboards() == DASHBOARDS
    assert {path.stem for path in FOLDER.glob("*.json")} == {each.name for each in DASHBOARDS}


def test_every_metric_is_on_a_panel_or_left_out_with_a_reason() -> None:
    shown = {
        metric
        for dashboard in DASHBOARDS
        for panel in _graphs(dashboard)
        for target in panel["targets"]
        for metric in metrics_in(target["expr"])
    }
    assert shown | LEFT_OUT.keys() == metric_labels().keys()
    assert not shown & LEFT_OUT.keys()
    assert all(LEFT_OUT.values())


@pytest.mark.parametrize("panel", PANELS)
def test_panel_names_only_metrics_and_labels_that_exist(panel: Panel) -> None:
    known = metric_labels()
    for query in panel.queries:
        metrics = metrics_in(query.expression)
        assert metrics
        assert metrics <= known.keys()
        used = labels_in(query.expression) | labels_in(query.legend)
        assert used <= EVERYWHERE.union(*(known[metric] for metric in metrics))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_graphs_have_a_unit_a_description_and_a_number_of_their_own(dashboard: Dashboard) -> None:
    graphs = _graphs(dashboard)
    for graph in graphs:
        assert graph["fieldConfig"]["defaults"]["unit"] in UNITS
        assert graph["description"].endswith((".", ")."))
        assert graph["targets"]
    assert len({graph["id"] for graph in graphs}) == len(graphs)
    assert len({graph["title"] for graph in graphs}) == len(graphs)


def test_every_alert_is_on_a_panel_with_its_limit_and_its_name() -> None:
    panels = [panel for dashboard in DASHBOARDS for panel in dashboard.panels if panel.alert]
    assert sorted(str(panel.alert) for panel in panels) == sorted(
        rule["alert"] for rule in all_rules()
    )
    for dashboard in DASHBOARDS:
        for panel, graph in zip(dashboard.panels, _graphs(dashboard), strict=True):
            assert graph["description"] == described(panel)
            steps = graph["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
            if panel.alert is None:
                assert steps == []
                continue
            (condition, *_) = alert(panel.alert).conditions
            assert panel.alert in graph["description"]
            coloured = {step["color"]: step["value"] for step in steps}
            bad = {"page": "red", "ticket": "orange"}[alert(panel.alert).severity]
            limit = coloured["green" if condition.comparison == "<" else bad]
            assert limit == pytest.approx(condition.limit, abs=1e-6)


def test_panel_of_an_alert_shows_what_the_alert_compares() -> None:
    for rule in all_rules():
        for condition in alert(rule["alert"]).conditions:
            text = _NUMBER.sub(lambda match: f"{float(match[0]):g}", rule["expr"])
            number = f"{condition.limit:g}"
            compared = f"{condition.expression} {condition.comparison} {number}"
            assert compared in text or rule["expr"].startswith("absent(")


def test_picture_of_every_panel_is_in_the_documents_and_small() -> None:
    page = (ROOT / "docs" / "operators" / "dashboards.md").read_text()
    total = 0
    for dashboard in DASHBOARDS:
        text = (PICTURES / f"{dashboard.name}.svg").read_text()
        assert f"(dashboards/{dashboard.name}.svg)" in page
        assert [panel.title for panel in dashboard.panels if escape(panel.title) not in text] == []
        total += len(text)
    assert total < PICTURES_BYTES_MAX
