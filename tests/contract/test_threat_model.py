"""The threat model names, for each rule, tests and mutations that exist."""

import re
from collections.abc import Iterator

import pytest

from tests.support import mutations
from tests.support.documents.pages import ROOT
from tests.support.mutants.tables import modules

PAGE = ROOT / "docs" / "threat-model.md"

HEAD = ["tests", "mutations"]
"""The last two columns of a table of rules."""

NO_CODE = "an answer; no code follows one"
"""The rule that nothing can be removed of."""

HERE = "tests/contract/test_threat_model.py"

KNOWN = "`sum_beyond_64_bits`"

_CODE = re.compile(r"`([^`]+)`")


def _rules(text: str) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Yield each row of a table of rules: what it is against, the rule, tests and mutations."""
    is_table = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_table = False
        elif cells[-2:] == HEAD:
            is_table = True
        elif is_table and set(line) - set("|-"):
            yield cells[0], cells[1], _CODE.findall(cells[-2]), _CODE.findall(cells[-1])


def _faults(text: str) -> Iterator[str]:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    known = {*mutations.load(), *(each.file for each in modules())}
    for threat, rule, tests, removals in _rules(text):
        if not tests:
            yield f"{threat}: no test"
        if not removals and rule != NO_CODE:
            yield f"{threat}: no mutation"
        for test in tests:
            file, _, name = test.partition("::")
            ends = [each for each in files if f"/{each}".endswith(f"/{file}")]
            if len(ends) != 1:
                yield f"{test} is the end of {len(ends)} files"
            elif not re.search(
                rf"^(async )?def {name}\(", (ROOT / ends[0]).read_text(), re.MULTILINE
            ):
                yield f"{ends[0]} has no {name or 'test'}"
        yield from (f"there is no mutation {name}" for name in removals if name not in known)


def test_each_rule_has_tests_and_mutations_that_exist() -> None:
    text = PAGE.read_text()
    assert list(_faults(text)) == []
    boundaries = [part for part in text.split("\n## ") if part[0].isdigit()]
    assert [part for part in boundaries if not list(_rules(part))] == []


@pytest.mark.parametrize(
    ("tests", "removals", "fault"),
    [
        ("", KNOWN, "an attack: no test"),
        ("`test_threat_model.py::test_fault_is_named`", "", "an attack: no mutation"),
        ("`test_gone.py::test_it`", KNOWN, "test_gone.py::test_it is the end of 0 files"),
        ("`test_threat_model.py::test_it`", KNOWN, f"{HERE} has no test_it"),
        (
            "`test_threat_model.py::test_fault_is_named`",
            "`gone`",
            "there is no mutation gone",
        ),
    ],
)
def test_fault_is_named(tests: str, removals: str, fault: str) -> None:
    head = "| attack | rule | tests | mutations |\n|---|---|---|---|\n"
    row = f"| an attack | a rule | {tests} | {removals} |"
    assert list(_faults(head + row)) == [fault]
