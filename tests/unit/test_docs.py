"""Documents: links, the index, tables that match the code, and drawings."""

import ast
import math
import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

import pytest

from holdfast.deploy.local.stack.dashboards import Curve, Drawing, page, readable
from holdfast.deploy.local.stack.panels import dashboards
from holdfast.deploy.release.pages import broken, links, pages
from holdfast.dispatcher.operators.config.settings import SETTINGS
from holdfast.dispatcher.operators.endpoints.settings import SETTINGS as ENDPOINT
from holdfast.dispatcher.operators.endpoints.settings import Form
from holdfast.sink.contract.tables import metadata
from tests.run import REST
from tests.support.documents.pages import PACKAGES, ROOT, blocks, name_of
from tests.support.documents.python_reference import PAGE
from tests.support.documents.python_reference import page as page_of_packages

README_WORDS_MAX = 800
"""A screen; `docs/` has the rest."""

LANGUAGES = {
    *("", "sh", "python", "toml", "sql", "json", "yaml", "mermaid"),
    *("go", "java", "php", "ts"),  # of receivers
}
"""Of blocks. `tests/e2e/test_docs.py` executes them; mermaid is compared with the code."""


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    assert list(broken()) == []


@pytest.mark.parametrize("link", ["nowhere.md", "README.md#nowhere", "#nowhere"])
def test_link_that_leads_nowhere_is_named(link: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"# Here\n\n[here](#here), [there]({link})\n")
    assert list(broken(tmp_path)) == ["README.md: the link 'there' leads nowhere"]


def test_no_page_has_the_marks_of_an_unfinished_merge() -> None:
    mark = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
    assert [name_of(page) for page in pages() if mark.search(page.read_text())] == []


def test_no_address_of_a_link_has_a_blank() -> None:
    """Such a link is text, so the test above does not see it."""
    split = re.compile(r"\]\([^)`]*\s[^)`]*\.md[^)`]*\)")
    found = {name_of(page): split.findall(page.read_text()) for page in pages()}
    assert {name: links for name, links in found.items() if links} == {}


def test_index_has_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {path for _, path, _ in links(index)}
    assert set((ROOT / "docs").rglob("*.md")) - {index} <= linked


def test_readme_fits_a_screen() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS_MAX


def test_blocks_are_of_languages_that_tests_know() -> None:
    assert {each.language for each in blocks()} <= LANGUAGES


def test_no_text_installs_the_other_project_named_holdfast_on_pypi() -> None:
    by_name = re.compile(r"\bpip3? install\b[^\n#]*?[\s'\"]holdfast(?![\w/-])(?!.*@)")
    files = {*pages(), *(ROOT / each for each in _files()), *ROOT.glob("*.toml")}
    named = {name_of(path): by_name.findall(path.read_text()) for path in files}
    assert {name: texts for name, texts in named.items() if texts} == {}


def test_settings_page_is_the_list_of_settings() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    rows = re.findall(r"^\| `(HOLDFAST_\w+)` \|(.*?)\|(.*?)\|", text, re.MULTILINE)
    reply = {
        name: (option.strip("` ") or None, default.strip("` ")) for name, option, default in rows
    }
    assert reply == {each.name: (each.option, each.default or "") for each in SETTINGS}


_DIAGRAM = re.compile(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"^(\w+)(?:-->>|->>|--x|-x)(\w+): \S")


def test_sequence_diagrams_name_only_their_participants() -> None:
    drawn = [
        diagram
        for page in ("docs/concepts.md", "docs/failures.md")
        for diagram in _DIAGRAM.findall((ROOT / page).read_text())
    ]
    assert len(drawn) == 4
    for diagram in drawn:
        named = set(re.findall(r"participant (\w+)", diagram))
        lines = [each.strip() for each in diagram.splitlines()]
        lines = [each for each in lines if not re.match(r"participant|Note|alt|else|end$", each)]
        arrows = [_ARROW.match(each) for each in lines]
        assert None not in arrows, lines
        assert {name for arrow in arrows if arrow for name in arrow.groups()} == named


def test_protocol_has_the_default_delays_of_a_retry() -> None:
    text = (ROOT / "docs" / "receivers" / "PROTOCOL.md").read_text()
    [row] = re.findall(r"^\| after \| (.*) \|$", text, re.MULTILINE)
    units = {"s": 1, "min": 60, "h": 3600}
    delays = [int(number) * units[unit] for number, unit in re.findall(r"(\d+) (\w+)", row)]
    assert delays == ENDPOINT["schedule_seconds"].default


def test_page_of_pace_has_the_defaults_of_the_settings() -> None:
    text = (ROOT / "docs" / "operators" / "pace.md").read_text()
    units = {"s": 1, "d": 86_400, "": 1}
    rows = re.findall(r"^\| `(--[a-z-]+)` \| (none|(\d+) ?([sd]?)) \|", text, re.MULTILINE)
    shown = {
        option: int(number) * units[unit] if number else None for option, _, number, unit in rows
    }
    assert len(shown) == 7
    by_option = {each.option: each for each in ENDPOINT.values()}
    for option, value in shown.items():
        setting = by_option[option]
        is_milliseconds = setting.form is Form.MILLISECONDS
        assert value == (setting.default / 1000 if is_milliseconds else setting.default), option


def test_python_reference_is_made_from_the_code() -> None:
    """After a change that is meant: `make python-reference`."""
    assert PAGE.read_text() == page_of_packages()


def test_page_of_the_database_has_every_table() -> None:
    section = (ROOT / "docs" / "operators" / "database.md").read_text().partition("## Tables")[2]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section.partition("\n## ")[0], re.MULTILINE)
    reply = {name for row in rows for name in re.findall(r"\w+", row)}
    assert reply == {table.name for table in metadata.sorted_tables}


@pytest.mark.parametrize("page", ["dispatcher", "sink", "spark_app", "migrations"])
def test_readme_of_a_room_is_half_a_screen(page: str) -> None:
    assert len((ROOT / page / "README.md").read_text().split()) <= 350


_SOURCE = r"[\w.-]+\.(?:py|sql|html|go|java|php|ts)"
_PATH = re.compile(
    rf"(?<![\w./<>~-])((?:{'|'.join(PACKAGES)}|docs|requirements|\.ci)/[\w./*-]*[\w/*])"
)
"""A path from the root, in text, code or a block; `*` is any part of a name."""
_SHORT = re.compile(rf"`((?:[\w.-]+/)*{_SOURCE})(?:::\w+)?`")
"""A source file by the end of its path; the page of a folder names files below it."""


def _missing_paths(text: str, root: Path, files: set[str]) -> set[str]:
    """Return the paths that a page names and that no file or folder of the repository has."""
    ends = {
        "/".join(parts[at:])
        for parts in (each.split("/") for each in files)
        for at in range(len(parts))
    }
    full = set(_PATH.findall(text))
    short = {path.removeprefix("holdfast/") for path in _SHORT.findall(text)} - full
    return {path for path in full if not any(root.glob(path.rstrip("/")))} | (short - ends)


def _files() -> set[str]:
    """Return the path of each source file of the repository."""
    inner = (path for each in (*PACKAGES, "docs") for path in (ROOT / each).rglob("*"))
    return {
        name_of(path) for path in (*inner, *ROOT.glob("*.py")) if re.fullmatch(_SOURCE, path.name)
    }


def test_every_path_in_a_page_exists() -> None:
    files = _files()
    missing: dict[str, set[str]] = {}
    for document in pages():
        below = (
            "" if document.is_relative_to(ROOT / "docs") else name_of(document).rpartition("/")[0]
        )
        beside = {each for each in files if each.startswith(below)}
        missing[name_of(document)] = _missing_paths(document.read_text(), ROOT, beside)
    assert {name: paths for name, paths in missing.items() if paths} == {}


@pytest.mark.parametrize(
    "text",
    ["`sink/gone.py`", "see sink/gone.py.", "`sink/gone/`", "```sh\ncat sink/gone.py\n```"],
)
def test_path_that_does_not_exist_is_missing(text: str, tmp_path: Path) -> None:
    assert {path.rstrip("/") for path in _missing_paths(text, tmp_path, set())} in (
        {"sink/gone.py"},
        {"sink/gone"},
    )


def test_short_path_is_the_end_of_a_file(tmp_path: Path) -> None:
    text = "`kept.py`, `sql/kept.sql`, `gone.py`, `rows/kept.sql`, `kept.toml`"
    files = {"sink/kept.py", "sink/sql/kept.sql"}
    assert _missing_paths(text, tmp_path, files) == {"gone.py", "rows/kept.sql"}


def _shown() -> dict[int, set[str]]:
    """Return the tests that are marked with each guarantee and run in `make test`."""
    shown: dict[int, set[str]] = defaultdict(set)
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text()
        if "@pytest.mark.guarantee(" not in text or REST.search(text):
            continue
        for node in ast.parse(text).body:
            marks = [ast.unparse(each) for each in getattr(node, "decorator_list", [])]
            if not any(re.match(r"pytest\.mark\.(rest|long|skip)", mark) for mark in marks):
                for mark in marks:
                    for number in re.findall(r"\d+", mark) if ".guarantee(" in mark else []:
                        shown[int(number)].add(f"{name_of(file)}::{node.name}")
    return shown


def test_page_names_what_shows_each_guarantee() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (`tests/.*) \|$", page, re.MULTILINE)
    reply = {int(number): set(tests.strip("`").split("`, `")) for number, tests in rows}
    assert reply == _shown()
    assert list(reply) == list(range(1, len(reply) + 1))


PANELS = [panel for each in dashboards() for panel in each.panels]
LATE = next(each for each in PANELS if each.alert == "HoldfastDecisionsLate")


def test_values_are_shown_with_the_unit_that_fits_them() -> None:
    assert [readable(each, "s") for each in (0, 0.012, 5, 90, 5400)] == [
        *("0", "12 ms", "5 s", "1.5 min", "1.5 h")
    ]
    assert [readable(each, "bytes") for each in (12, 131_000)] == ["12 B", "131 kB"]
    assert [readable(each, "reqps") for each in (0, 7.216)] == ["0 /s", "7.22 /s"]


def test_line_breaks_at_missing_values_and_keeps_ends_of_flat_parts() -> None:
    points = [(0, 400), (1, 400), (2, 400), (3, math.nan), (4, 100), (5, 200)]
    drawn = page([("row", [Drawing(LATE, [Curve("a & b", points)])])], 5)
    tree = ET.fromstring(drawn)  # noqa: S314 - our own
    lines = [each.attrib for each in tree.iter() if each.tag.endswith("polyline")]
    assert [len(each["points"].split()) for each in lines] == [2, 2, 2]
    assert lines[-1]["class"] == "l", "the limit of the alert"
    texts = {each.text for each in tree.iter() if each.tag.endswith("text")}
    assert {LATE.title, "a & b", "alert > 5 min"} <= texts


def test_limit_that_is_far_above_is_named_and_not_drawn() -> None:
    drawn = page([("row", [Drawing(LATE, [Curve("payouts", [(0, 1), (1, 2)])])])], 5)
    assert 'class="l"' not in drawn
    assert "alert &gt; 5 min" in drawn


_UNPLAIN = {
    r"\bgoes on\b|\bgo on with\b|\bgone on\b(?! purpose)": "continues",
    r"\b(?:says|said) so\b": "reports, confirms",
    r"\b(?:content|order|text|values?) of then\b": "original",
    r"\bshall never\b": "is dropped, is refused",
    r"\bcomes second\b": "the second writer",
    r"\bcannot be told\b": "is not known; if you cannot tell",
    r"\bcounts? as that\b(?! long)": "is treated as",
    r"\bthat nobody knows\b": "unknown",
    r"\bdoes not look who\b": "does not check for",
    r"\b(?:that|which) is none\b": "is not a ..., does not have",
    r"\bno pickle\b": "pickling drops",
    r"\bover all streams of the database\b": "across all streams",
    r"\bkept silent about\b|\bkeeps silent\b": "does not report",
}
"""What readers stumble over, with what to write instead."""


def _unplain(text: str) -> list[str]:
    joined = " ".join(text.split())
    return [
        f"{match[0]!r}: write {instead!r}"
        for words, instead in _UNPLAIN.items()
        for match in re.finditer(words, joined)
    ]


def test_documents_and_messages_use_plain_words() -> None:
    own = {"docs/from-the-lesson.md"}  # quotes the lesson's own code
    sources = [path for each in PACKAGES if each != "tests" for path in (ROOT / each).rglob("*.py")]
    texts = {
        name_of(path): path.read_text()
        for path in [*pages(), *sources]
        if "versions" not in path.parts
    }
    faults = {name: _unplain(text) for name, text in texts.items() if name not in own}
    assert {name: found for name, found in faults.items() if found} == {}


def test_unplain_words_are_found_across_lines() -> None:
    assert _unplain("The query goes\non, with the content of then.") == [
        "'goes on': write 'continues'",
        "'content of then': write 'original'",
    ]
