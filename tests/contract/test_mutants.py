"""The tables of `make mutants` name modules, tests and code that exist."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.mutants.tables import ROOT, Equivalent, equivalents, modules

COMPLETE = ("dispatcher/delivery/rules/*.py",)
"""Folders of which each module is in the table."""

ROW = Equivalent(
    "dispatcher/outbound/retry_after.py", "", "import re", "import re as _re", "the same"
)


def test_every_module_and_its_tests_exist() -> None:
    rows = modules()
    named = [path for row in rows for path in (row.file, *row.tests)]
    assert [path for path in named if not (ROOT / path).exists()] == []
    files = [row.file for row in rows]
    assert len(files) == len(set(files))


def test_new_rules_are_in_the_table() -> None:
    pure = {
        path.relative_to(ROOT).as_posix()
        for pattern in COMPLETE
        for path in Path(ROOT).glob(pattern)
        if path.name != "__init__.py"
    }
    assert pure - {row.file for row in modules()} == set()


def test_what_need_not_be_noticed_is_in_the_code() -> None:
    rows = equivalents()
    assert [fault for row in rows for fault in row.faults()] == []
    assert {row.file for row in rows} <= {row.file for row in modules()}
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (replace(ROW, file="dispatcher/outbound/gone.py"), "gone.py has no such module"),
        (replace(ROW, function="gone"), "retry_after.py has no gone"),
        (replace(ROW, before="import gone"), "no 'import gone'"),
        (replace(ROW, before="import re\nimport gone"), "no 'import re"),
        (replace(ROW, why=""), "no reason"),
    ],
)
def test_row_without_its_code_or_a_reason_is_refused(row: Equivalent, fault: str) -> None:
    assert list(ROW.faults()) == []
    (reported,) = row.faults()
    assert fault in reported
