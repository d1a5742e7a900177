"""The commands and options that documents name are those of the `holdfast` command."""

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from holdfast.deploy.release.pages import pages
from holdfast.dispatcher.cli.main import application
from holdfast.dispatcher.operators.registry import ALIASES
from tests.support.documents.pages import ROOT, name_of

_INLINE = re.compile(r"`holdfast ([a-z][^`\n]*)`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?![a-z…-])")
"""In the index of errors `…` stands for what differs, also of a name."""
_ROW = re.compile(r"^\| `([a-z][^`]*)`(.*?) \|", re.MULTILINE)


def _tree(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by its words."""
    if getattr(command, "commands", None):
        for name, inner in command.commands.items():
            yield from _tree(inner, (*words, name))
    else:
        yield words, command


COMMANDS = dict(_tree(typer.main.get_command(application([]))))
GROUPS = {words[:count] for words in COMMANDS for count in range(1, len(words))}


def _meant(text: str) -> list[tuple[str, ...]]:
    """The commands that a text such as `replay plan|apply ID` names."""
    words = re.split(r"[ ]+", text.replace("\\|", "|"))
    results: list[tuple[str, ...]] = [()]
    for word in words:
        results = [(*begun, each) for begun in results for each in word.split("|")]
        if GROUPS.isdisjoint(results):
            return results
    return []


def _faults(text: str) -> Iterator[str]:
    for code in _INLINE.findall(text):
        first, _, rest = code.replace("…", " …").partition(" ")
        # An entry of an earlier version has its words.
        for words in _meant(f"{ALIASES.get(first, first)} {rest}".strip()):
            if words not in COMMANDS:
                yield f"{code}: no command {' '.join(words)}"
                continue
            options = {
                name
                for each in COMMANDS[words].params
                for name in (*each.opts, *each.secondary_opts)
            }
            yield from (
                f"{code}: no option {option}"
                for option in set(_OPTION.findall(code)) - options - {"--help"}
            )


def test_every_command_that_is_named_exists_with_its_options() -> None:
    faults = {name_of(page): list(_faults(page.read_text())) for page in pages()}
    assert {page: names for page, names in faults.items() if names} == {}


def test_page_of_commands_has_every_command() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    named = [
        words
        for first, others in _ROW.findall(text)
        for name in [first, *re.findall(r"`([a-z]+)`", others)]
        for words in _meant(name.replace("KEY\\|SUBJECT", "KEY"))
    ]
    assert sorted(named) == sorted(COMMANDS)
