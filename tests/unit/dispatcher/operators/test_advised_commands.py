"""A command that a sentence names with its object does what it says when it is pasted."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from holdfast.dispatcher.cli.main import application

ROOT = Path(__file__).parents[4]
QUICK = re.compile(r"`holdfast [^`{]*[{A-Z]|\"holdfast ")
COMMAND = re.compile(r"`holdfast ([^`]+)`")


def _text(node: ast.expr) -> str:
    """A string of the source with 1 in place of whatever is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.FormattedValue(value=ast.IfExp(body=ast.Constant(value=str(text)))):
            return text
        case _:
            return "1"


def _strings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant | ast.JoinedStr):
        yield _text(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from _strings(child)


def _advised() -> list[tuple[str, str]]:
    """The file and the words of every command that stands in a string of ours."""
    found = set()
    for folder in ("dispatcher", "sink", "spark_app", "migrations", "deploy"):
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text()
            if not QUICK.search(source):
                continue
            for text in _strings(ast.parse(source)):
                whole = text.removeprefix("holdfast ")
                words = [*COMMAND.findall(text), *([whole] if whole != text else [])]
                found |= {(str(path.relative_to(ROOT)), " ".join(each.split())) for each in words}
    return sorted(found)


@pytest.fixture(scope="module")
def root() -> Any:
    return typer.main.get_command(application([]))


def _lacks(root: Any, words: list[str]) -> list[str]:
    """The options that it needs and has not; a command without its object is only mentioned."""
    command = root
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if not words or words[0].startswith("-") or "--help" in words:
        return []
    needed = [each for each in command.params if each.required and each.opts[0].startswith("-")]
    return [each.name for each in needed if not {*each.opts} & {*words}]


def test_command_that_names_its_object_has_every_option_that_it_needs(root: Any) -> None:
    advised = _advised()
    assert (
        "dispatcher/delivery/rules/hold_reason.py",
        "endpoint resume 1 --reason TEXT",
    ) in advised
    assert _lacks(root, ["endpoint", "resume", "payouts"]) == ["reason"]
    lacking = {(path, text): _lacks(root, text.split()) for path, text in advised}
    assert {place: lacks for place, lacks in lacking.items() if lacks} == {}
