"""House rules that a reader would otherwise have to check by eye."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.statements import packages, statements_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("sink", "dispatcher", "migrations", "spark_app", "deploy")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
STATEMENTS = [
    (package, name, text.decode())
    for package in packages()
    for name, text in statements_of(package).items()
]

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
TEST_NAME_MAX = 70


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _too_long(path: Path) -> Iterator[str]:
    text = path.read_text()
    if (lines := len(text.splitlines())) > FILE_LINES_MAX:
        yield f"{_name(path)} has {lines} lines"
    if path.parent.name == "versions":
        return  # a revision is a list of statements, read from top to bottom
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{_name(path)}: {node.name} has {lines} lines"


def _says(text: str) -> str | None:
    return ast.get_docstring(ast.parse(text))


def _code(text: str) -> str:
    return re.sub(r"^--.*\n", "", text, flags=re.MULTILINE).strip()


def test_files_and_their_functions_fit_their_limits() -> None:
    assert [fault for path in SOURCES + TESTS for fault in _too_long(path)] == []


def test_names_of_tests_fit_their_limit() -> None:
    names = re.compile(r"def (test_\w+)")
    assert [
        name
        for path in TESTS
        for name in names.findall(path.read_text())
        if len(name) > TEST_NAME_MAX
    ] == []


def test_modules_say_what_they_are_for() -> None:
    texts = {_name(path): path.read_text() for path in SOURCES}
    assert [name for name, text in texts.items() if text.strip() and not _says(text)] == []


def test_each_section_is_one_statement_with_a_comment() -> None:
    faults = [
        f"{package} {name}"
        for package, name, text in STATEMENTS
        if not text.startswith("-- ") or _code(text).rstrip(";").count(";\n")
    ]
    assert faults == []


def test_section_names_are_unique_in_a_file() -> None:
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.sql")):
        names = re.findall(r"^-- name: (.*)$", path.read_text(), re.MULTILINE)
        assert len(names) == len(set(names)), path


def test_every_statement_is_used() -> None:
    words = {
        package: set(re.findall(r"\w+", "".join(p.read_text() for p in package.rglob("*.py"))))
        for package in map(ROOT.joinpath, PACKAGES)
    }
    unused = [
        f"{package} {name}"
        for package, name, _ in STATEMENTS
        if name.rpartition("/")[2] not in words[ROOT / package.split(".")[1]]
    ]
    assert unused == []


def test_every_module_is_imported_as_one_of_holdfast() -> None:
    # From the root of the tree its folders could be imported by their own names, a second time.
    other = re.compile(
        rf"^\s*(from|import) (({'|'.join(PACKAGES)})\b"
        r"|holdfast\.dispatcher\.receiver|holdfast\.sink\.testing)",
        re.MULTILINE,
    )
    assert [_name(path) for path in SOURCES + TESTS if other.search(path.read_text())] == []


def test_no_left_overs() -> None:
    marks = re.compile(
        r"\b(TODO|FIXME|XXX|NotImplementedError)\b|# (noqa|type: ignore)\s*$", re.MULTILINE
    )
    this_file = Path(__file__)
    names = [
        _name(path)
        for path in SOURCES + TESTS
        if path != this_file and marks.search(path.read_text())
    ]
    assert names == []


def test_requirements_name_no_index() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        text = file.read_text()
        assert "://" not in text, file
        assert "--index" not in text, file
        assert "--find-links" not in text, file
