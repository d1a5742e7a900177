"""What each page of the runbook must have, so that somebody at night finds it and needs no more."""

import re
from pathlib import Path

import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.documents.runbook import PAGES, Reader, Step, steps
from tests.support.monitoring.rules import ROOT, all_rules

NAMES = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README")

SECTIONS = ["What you see", "Lost, and not lost", "Do this", "Is it over?", "Never"]

LINES_MAX = 150
"""Of a page; half of them are commands and blank lines."""

SQL = re.compile(r"\b(psql|SELECT|UPDATE|INSERT|DELETE|TRUNCATE)\b")


def _text(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_page_has_its_sections_and_fits_and_needs_no_sql(name: str) -> None:
    text = _text(name)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert len(text.splitlines()) <= LINES_MAX
    assert not SQL.search(text)
    over = text.partition("## Is it over?")[2]
    assert any(each.text.startswith("holdfast check") for each in steps(over))


@pytest.mark.parametrize("name", NAMES)
def test_placeholder_is_explained_before_it_is_used(name: str) -> None:
    lines = _text(name).splitlines()
    prose = re.compile(r"`<([A-Z_]+)>`")
    for step in steps(_text(name)):
        before = set(prose.findall("\n".join(lines[: step.line])))
        assert set(step.places) <= before, f"{name}.md:{step.line}"


def test_index_and_tests_have_every_page() -> None:
    index = _text("README")
    assert sorted(re.findall(r"\(([\w-]+)\.md\)", index)) == NAMES
    tests = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    assert {f"test_{name.replace('-', '_')}" for name in NAMES} <= tests


def test_page_names_alerts_that_lead_to_it_or_says_none_fires() -> None:
    """By the alert's own page, or by a link from there, of a section over one page more."""
    alerts = (ROOT / "docs" / "operators" / "alerts.md").read_text()
    links = {name: set(re.findall(r"([\w-]+)\.md\)", _text(name))) & {*NAMES} for name in NAMES}
    leads: dict[str, set[str]] = {}
    for rule in all_rules():
        target, _, section = rule["annotations"]["runbook"].partition("#")
        text = alerts.partition(f"\n## {rule['alert']}\n")[2].partition("\n## ")[0]
        begin = (
            {*re.findall(r"([\w-]+)\.md\)", text)} & {*NAMES} if section else {Path(target).stem}
        )
        leads[rule["alert"]] = begin.union(*(links[name] for name in begin))
    for name in NAMES:
        seen = _text(name).partition("## What you see")[2].partition("\n## ")[0]
        named = re.findall(r"`(Holdfast[A-Z]\w+)`", seen)
        assert named or re.search(r"\bno alert\b", seen, re.IGNORECASE), name
        assert [each for each in named if name not in leads[each]] == [], name


def test_commands_in_the_text_exist() -> None:
    text = "".join(map(_text, ["README", *NAMES]))
    named = {
        tuple(found.split()) for found in re.findall(r"`holdfast ((?:[a-z]+ ?){1,2})[^`]*`", text)
    }
    assert ("replay", "list") in named
    for words in named:
        assert holdfast(*words, "--help").returncode == ExitCode.OK, words


def test_command_without_its_result_is_refused() -> None:
    command = "```sh\nholdfast status\n```\n"
    assert steps(f"{command}Exit 4, shows: `a`, `b c`.\n") == [
        Step(2, "holdfast status", 4, ("a", "b c"))
    ]
    for wrong in ("", "Exit 4\n", "Exit 4, shows: a.\n", "\nExit 4.\n"):
        with pytest.raises(ValueError, match="line 4: nothing says"):
            steps(command + wrong)


def test_other_options_and_another_exit_code_are_reported() -> None:
    reader = Reader("", {}, {"WORD": "version"})
    reader.give("page.md", Step(1, "holdfast --<WORD>", 0, ("holdfast",)))
    for step in (
        Step(7, "holdfast --version", 0, ("no such words",)),
        Step(7, "holdfast --version", 4),
        Step(7, "echo holdfast | grep other", 0),
    ):
        with pytest.raises(AssertionError, match=r"page\.md:7: "):
            reader.give("page.md", step)
