"""The tables of the mutants: which modules, by which tests, and what need not be noticed."""

import ast
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
TABLES = ROOT / "tests" / "mutations"


@dataclass(frozen=True)
class Module:
    """A pure module, and the tests that run for each of its mutants."""

    file: str
    tests: list[str] = field(hash=False)
    judged: bool = True
    """Whether each survivor was looked at. Those of other modules are printed and do not fail."""


@dataclass(frozen=True)
class Equivalent:
    """A mutant that no test has to notice."""

    file: str
    function: str
    """Qualified name; empty outside of functions and classes."""
    before: str
    """The lines that the mutant changes, each without the space around it."""
    after: str
    why: str = field(default="", compare=False)

    def row(self) -> str:
        """Return the row of the table."""
        texts = {"file": self.file, "function": self.function}
        texts |= {"before": self.before, "after": self.after, "why": self.why}
        lines = (f"{name} = {json.dumps(text)}\n" for name, text in texts.items())
        return "[[equivalent]]\n" + "".join(lines)

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with this row: code that is not there, or no reason."""
        path = ROOT / self.file
        lines = _lines(path.read_text(), self.function) if path.exists() else None
        before = self.before.splitlines()
        if lines is None:
            yield f"{self.file} has no {self.function or 'such module'}"
        elif not any(
            lines[at : at + len(before)] == before for at in range(len(lines) - len(before) + 1)
        ):
            yield f"{self.file}, {self.function}: no {self.before!r}"
        if not self.why:
            yield f"{self.file}, {self.function}: no reason for {self.after!r}"


def _lines(text: str, function: str) -> list[str] | None:
    """Return the lines of a function of a module, or None if it has no such function."""
    node: ast.AST | None = ast.parse(text)
    for name in filter(None, function.split(".")):
        node = next(
            (
                each
                for each in ast.walk(node or ast.Module([], []))
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and each.name == name
            ),
            None,
        )
    if node is None:
        return None
    lines = text.splitlines()
    if isinstance(node, ast.stmt):
        lines = lines[node.lineno - 1 : node.end_lineno]
    return [line.strip() for line in lines]


def modules() -> list[Module]:
    """Return the modules in the order of the table."""
    rows = tomllib.loads((TABLES / "modules.toml").read_text())["module"]
    return [Module(**row) for row in rows]


def equivalents() -> list[Equivalent]:
    """Return what need not be noticed."""
    rows = tomllib.loads((TABLES / "equivalent.toml").read_text()).get("equivalent", [])
    return [Equivalent(**row) for row in rows]
