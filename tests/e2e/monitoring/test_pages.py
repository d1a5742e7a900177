"""Each alert names a page, a real fault fires it, and the page's commands show what it says."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import holdfast
from tests.support.documents.runbook import Reader, decided, rows, running_site, steps
from tests.support.job.driver import Driver
from tests.support.monitoring.rules import ROOT, all_rules

pytestmark = pytest.mark.rest

PAGE = ROOT / "docs" / "operators" / "alerts.md"
RULES = [pytest.param(rule, id=rule["alert"]) for rule in all_rules()]

_FIRED = re.compile(r'\.fires\(\s*"(\w+)"')


@pytest.mark.parametrize("rule", RULES)
def test_alert_names_a_page_that_names_the_alert(rule: dict[str, dict[str, str]]) -> None:
    name, _, section = rule["annotations"]["runbook"].partition("#")
    text = (ROOT / name).read_text()
    if not section:
        assert name.startswith("deploy/runbook/")
        assert f"`{rule['alert']}`" in text.partition("## Lost, and not lost")[0]
        return
    assert ROOT / name == PAGE
    headings = re.findall(r"^## (\w+)$", text, re.MULTILINE)
    assert rule["alert"] in headings
    assert section == str(rule["alert"]).lower()


def test_every_alert_is_in_the_table_with_its_severity_and_page() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| .*\((.+)\) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (
            rule["alert"],
            rule["labels"]["severity"],
            rule["annotations"]["runbook"]
            .replace("docs/operators/alerts.md", "")
            .replace("deploy/", "../../deploy/"),
        )
        for rule in all_rules()
    ]


def test_page_has_a_section_for_each_alert_without_a_runbook_and_no_other() -> None:
    named = {
        str(rule["alert"])
        for rule in all_rules()
        if rule["annotations"]["runbook"].startswith("docs/operators/alerts.md")
    }
    assert set(re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)) == named


def test_every_alert_is_fired_by_a_fault_of_these_tests() -> None:
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*_alerts.py")]
    fired = {name for text in texts for name in _FIRED.findall(text)}
    assert fired == {rule["alert"] for rule in all_rules()}


def test_commands_of_the_page_show_what_it_says(
    dsn: str, make_database: Callable[[str | None], str], tmp_path: Path
) -> None:
    with running_site(dsn, make_database(None), tmp_path) as site:
        site.serve()
        site.endpoint()
        site.dispatch()
        spark = Driver(site.dsn)
        spark.tables(0, rows(decided("m_482", 1, "block")))
        spark.sink.close()
        site.delivered()
        add = ("token", "add", "someone", "--role", "viewer", "--reason", "test")
        assert holdfast(*add, dsn=site.dsn).returncode == 0
        reader = Reader(site.dsn, {}, {})
        for step in steps(PAGE.read_text()):
            reader.give(PAGE.name, step)
