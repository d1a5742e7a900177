"""The documents: links lead somewhere, every page is in the index, tables are those of the code."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from holdfast.deploy.release.pages import broken, links, pages
from holdfast.dispatcher.operators.config.settings import SETTINGS
from holdfast.sink.contract.tables import metadata
from tests.run import REST
from tests.support.pages import PACKAGES, ROOT, blocks, name_of

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


def test_index_has_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {path for _, path, _ in links(index)}
    assert set((ROOT / "docs").rglob("*.md")) - {index} <= linked


def test_readme_fits_a_screen() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS_MAX


def test_blocks_are_of_languages_that_tests_know() -> None:
    assert {each.language for each in blocks()} <= LANGUAGES


def test_settings_page_is_the_list_of_settings() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    rows = re.findall(r"^\| `(HOLDFAST_\w+)` \|(.*?)\|(.*?)\|", text, re.MULTILINE)
    told = {
        name: (option.strip("` ") or None, default.strip("` ")) for name, option, default in rows
    }
    assert told == {each.name: (each.option, each.default or "") for each in SETTINGS}


def test_page_of_the_database_has_every_table() -> None:
    section = (ROOT / "docs" / "operators" / "database.md").read_text().partition("## Tables")[2]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section.partition("\n## ")[0], re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"\w+", row)}
    assert told == {table.name for table in metadata.sorted_tables}


@pytest.mark.parametrize("page", ["dispatcher", "sink", "spark_app", "migrations"])
def test_readme_of_a_room_is_half_a_screen(page: str) -> None:
    assert len((ROOT / page / "README.md").read_text().split()) <= 350


def test_paths_that_are_named_exist() -> None:
    rooms = "|".join(PACKAGES)
    named = re.compile(rf"`((?:{rooms}|docs)/[\w./-]*)`")
    missing = {
        (name_of(page), path)
        for page in pages()
        for path in named.findall(page.read_text())
        if not (ROOT / path).exists()
    }
    assert missing == set()


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
    told = {int(number): set(tests.strip("`").split("`, `")) for number, tests in rows}
    assert told == _shown()
    assert list(told) == list(range(1, len(told) + 1))
