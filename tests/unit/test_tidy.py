"""House rules that a reader would otherwise have to check by eye."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sink", "dispatcher", "migrations", "spark_app", "deploy")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
STATEMENTS = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("sql/**/*.sql"))

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=_name)
def test_file_and_its_functions_fit_their_limits(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= FILE_LINES_MAX
    if path.parent.name == "versions":
        return  # a revision is a list of statements, read from top to bottom
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", STATEMENTS, ids=_name)
def test_statement_file_explains_itself_and_holds_one_statement(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("-- ")
    assert lines[1].startswith("-- ")
    code = "\n".join(line for line in lines if not line.startswith("--"))
    assert code.strip().rstrip(";").count(";\n") == 0


@pytest.mark.parametrize("path", STATEMENTS, ids=_name)
def test_statement_file_is_used(path: Path) -> None:
    used = re.compile(rf"\b{re.escape(path.stem)}\b")
    package = ROOT / path.relative_to(ROOT).parts[0]
    assert any(used.search(source.read_text()) for source in package.rglob("*.py"))


def test_no_left_overs() -> None:
    marks = re.compile(
        r"\b(TODO|FIXME|XXX|NotImplementedError)\b|# (noqa|type: ignore)\s*$", re.MULTILINE
    )
    here = Path(__file__)
    found = [
        _name(path) for path in SOURCES + TESTS if path != here and marks.search(path.read_text())
    ]
    assert found == []


def test_requirements_name_no_index() -> None:
    text = (ROOT / "requirements" / "dev.txt").read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
