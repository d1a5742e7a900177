"""Print the mutants of a module as JSON. Runs in the environment of mutmut, outside the project's.

The mutators are those of mutmut. It runs them on functions alone, and here on tables and other
constants too. Added are conditions that are dropped. What is for people only, a text with spaces or
what `raise` says, is left as it is.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import libcst as cst
import libcst.matchers as m
from mutmut.mutation.mutators import (
    mutation_operators,
    operator_arg_removal,
    operator_assignment,
    operator_augmented_assignment,
    operator_lambda,
    operator_match,
    operator_number,
    operator_string,
)

Mutator = Callable[[Any], Iterable[cst.CSTNode]]


def _forced(test: cst.BaseExpression) -> Iterator[cst.BooleanOperation]:
    """Yield a condition that is never true, and one that always is. What it calls is called."""
    inner = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    for operator, constant in ((cst.And(), "False"), (cst.Or(), "True")):
        yield cst.BooleanOperation(inner, operator, cst.Name(constant))


def _condition(node: cst.If | cst.CompIf) -> Iterator[cst.CSTNode]:
    for test in _forced(node.test):
        yield node.with_changes(test=test)


def _operand(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    """Yield each side by itself, in the parentheses of both."""
    for side in (node.left, node.right):
        yield side.with_changes(
            lpar=[*node.lpar, *side.lpar, cst.LeftParen()],
            rpar=[cst.RightParen(), *side.rpar, *node.rpar],
        )


def _element(node: cst.Dict | cst.List | cst.Set | cst.Tuple) -> Iterator[cst.CSTNode]:
    """Yield a table without each of its rows."""
    if len(node.elements) > 1:
        for number in range(len(node.elements)):
            rest = [*node.elements[:number], *node.elements[number + 1 :]]
            if isinstance(node, cst.Tuple) and len(rest) == 1:
                rest = [rest[0].with_changes(comma=cst.Comma())]
            yield node.with_changes(elements=rest)


def _case(node: cst.Match) -> Iterator[cst.CSTNode]:
    """Yield a match without each of its cases, but the one that cannot be reached."""
    for number, case in enumerate(node.cases):
        if not m.matches(case.pattern, m.MatchAs(pattern=None, name=None)) or case.guard:
            yield node.with_changes(cases=[*node.cases[:number], *node.cases[number + 1 :]])


def _argument(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield a call without each of its arguments."""
    return (each for each in operator_arg_removal(node) if len(each.args) < len(node.args))


def _keyword(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield a call without each of the arguments that have a name, and may have a default."""
    for number, argument in enumerate(node.args):
        if argument.keyword:
            yield node.with_changes(args=[*node.args[:number], *node.args[number + 1 :]])


CODECS = {"ascii", "utf-8", "sha256"}
"""Names that may be written in any case."""


def _word(node: cst.SimpleString) -> Iterable[cst.CSTNode]:
    is_text = " " in node.value or len(node.value) < 3 or node.value.strip("\"'") in CODECS
    return () if is_text else operator_string(node)


OWN: list[tuple[type, Mutator]] = [
    (cst.If, _condition),
    (cst.CompIf, _condition),
    (cst.BooleanOperation, _operand),
    *((kind, _element) for kind in (cst.Dict, cst.List, cst.Set, cst.Tuple)),
]

_REPLACED = (operator_arg_removal, operator_assignment, operator_match, operator_string)
"""Also None in place of a value, which the type checker finds where it is not allowed."""

IN_BODIES: list[tuple[type, Mutator]] = [
    *((kind, each) for kind, each in mutation_operators if each not in _REPLACED),
    (cst.SimpleString, _word),
    (cst.Call, _keyword),
    (cst.Match, _case),
    *OWN,
]

_NOT_OUTSIDE = (
    *_REPLACED,
    operator_augmented_assignment,
    operator_lambda,
    operator_number,
)
"""What an import would fail of, and the value of a limit: no rule says why it is not one more."""

OUTSIDE: list[tuple[type, Mutator]] = [
    *((kind, each) for kind, each in mutation_operators if each not in _NOT_OUTSIDE),
    (cst.Call, _argument),
    *OWN,
]

_SKIPPED = (
    m.Annotation()
    | m.AssignTarget()
    | m.Call(func=m.Name("assert_never") | m.Name("field"))
    | m.Decorator()
    | m.Raise()
    | m.Assert()
    | m.FormattedString()
    | m.ConcatenatedString()
    | m.Import()
    | m.ImportFrom()
    | m.Expr(value=m.SimpleString())
    | m.FunctionDef(name=m.Name("__repr__") | m.Name("__str__"))
    | m.If(test=m.Name("TYPE_CHECKING"))
    | m.Call(func=m.Name("TypeVar") | m.Name("cast"))
)


class Mutants(cst.CSTVisitor):
    """Collects each node with what may take its place, and the function whose body it is in."""

    def __init__(self) -> None:
        self.all: list[tuple[cst.CSTNode, cst.CSTNode, str, bool]] = []
        self._names: list[tuple[str, bool]] = []
        self._keys: set[cst.CSTNode] = set()
        """Of rows: a part of a key is no row."""
        self._bodies = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Make the mutants of a node; returns whether those of its children are wanted."""
        if m.matches(node, _SKIPPED):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append((node.name.value, isinstance(node, cst.FunctionDef)))
        if isinstance(node, cst.DictElement):
            self._keys.add(node.key)
        for kind, mutate in IN_BODIES if self._bodies else OUTSIDE:
            if isinstance(node, kind) and not (mutate is _element and node in self._keys):
                self.all.extend(
                    (node, to, self._function(), self._bodies > 0) for to in mutate(node)
                )
        return super().on_visit(node)

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """Leave the scope of a function or class."""
        super().on_leave(original_node)
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()

    def visit_FunctionDef_body(self, node: cst.FunctionDef) -> None:  # noqa: ARG002, N802
        """Count bodies: defaults of parameters are evaluated outside."""
        self._bodies += 1

    def leave_FunctionDef_body(self, node: cst.FunctionDef) -> None:  # noqa: ARG002, N802
        """Count bodies."""
        self._bodies -= 1

    def _function(self) -> str:
        """Return the qualified name of the outermost function, or of the class around."""
        names: list[str] = []
        for name, is_function in self._names:
            names.append(name)
            if is_function:
                break
        return ".".join(names)


def _difference(before: list[str], after: list[str]) -> tuple[str, str]:
    """Return the lines that differ, of both."""
    start = 0
    while before[start : start + 1] == after[start : start + 1] and start < len(before):
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return tuple(
        "\n".join(line.strip() for line in lines[start : len(lines) - end])
        for lines in (before, after)
    )


def mutants(text: str) -> Iterator[dict[str, object]]:
    """Yield every mutant of a module's text."""
    module = cst.MetadataWrapper(cst.parse_module(text)).module
    lines = text.splitlines()
    known = {text}
    parts = [module.code_for_node(statement) for statement in module.body]
    head, _, foot = text.partition("".join(parts))
    for number, statement in enumerate(module.body):
        made = Mutants()
        statement.visit(made)
        before, after = "".join(parts[:number]), "".join(parts[number + 1 :])
        for node, to, function, in_body in made.all:
            mutated = cst.ensure_type(statement.deep_replace(node, to), cst.CSTNode)
            source = f"{head}{before}{module.code_for_node(mutated)}{after}{foot}"
            if source in known:
                continue
            known.add(source)
            old, new = _difference(lines, source.splitlines())
            yield {
                "function": function,
                "in_body": in_body,
                "before": old,
                "after": new,
                "source": source,
            }


if __name__ == "__main__":
    json.dump(list(mutants(Path(sys.argv[1]).read_text())), sys.stdout)
