"""The reference of the public Python packages, from signatures and docstrings.

`make python-reference` writes it to `docs/reference/python.md`.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "python.md"

MODULES = {
    "holdfast.sink": "exceptions-of-the-sink",
    "holdfast.receiver": "exceptions-of-the-receiver-kit",
    "holdfast.receiver.fastapi": "",
    "holdfast.receiver.wsgi": "",
    "holdfast.receiver.sqlalchemy_inbox": "",
    "holdfast.receiver.ddl": "",
    "holdfast.testing": "exceptions-of-the-test-kit",
    "holdfast.testing.fixtures": "",
}
"""The public modules, each with the section of docs/reference/errors.md that has its exceptions."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Za-z_])")
_NAME = re.compile(r"~?\b[a-z_]+(?:\.[a-z_]+)*\.([A-Z]\w*)")


def page() -> str:
    """Return the page: its introduction as it stands, then each module."""
    begin, _, _ = PAGE.read_text().partition("\n## ")
    return "\n\n".join([begin.rstrip("\n"), *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for name, errors in MODULES.items():
        module = import_module(name)
        yield f"## {name}"
        yield _text(module)
        if errors:
            yield f"Exceptions: [errors](errors.md#{errors})."
        for each in _public(module):
            yield from _described(each, getattr(module, each))


def _public(module: Any) -> list[str]:
    """Return the names of a module: `__all__`, or what it defines and does not hide."""
    if names := getattr(module, "__all__", None):
        return sorted(names, key=str.lower)
    return [
        name
        for name, each in vars(module).items()
        if not name.startswith("_") and getattr(each, "__module__", None) == module.__name__
    ]


def _described(name: str, each: Any) -> Iterator[str]:
    if isinstance(each, type) and issubclass(each, Exception):
        return
    yield f"### {name}"
    match each:
        case type() if issubclass(each, Enum):
            yield _text(each)
            yield ", ".join(f"`{member.value}`" for member in each) + "."
        case type():
            yield _signature(name, each)
            yield _text(each)
            if fields := _fields(each):
                yield "\n".join(f"- `{field}`: {said}" for field, said in fields)
            for method, function in _methods(each):
                yield f"#### {name}.{method}"
                if not isinstance(function, property):
                    yield _signature(method, getattr(each, method))
                yield _text(function)
        case _ if callable(each):
            yield _signature(name, each)
            yield _text(each)
        case _:
            yield f"`{each!r}`"


def _fields(each: type) -> list[tuple[str, str]]:
    """Return the attributes of a class with a docstring below them."""
    [class_] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
    nodes = [
        node
        for method in [class_, *ast.walk(class_)]
        if isinstance(method, ast.ClassDef | ast.FunctionDef)
        for node in zip(method.body, method.body[1:], strict=False)
    ]
    found = []
    for before, node in nodes:
        match before, node:
            case (
                ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ) if not name.startswith("_"):
                found.append((name, " ".join(text.split())))
    return list(dict.fromkeys(found))


def _methods(each: type) -> list[tuple[str, Any]]:
    """Return the methods and properties that a class defines with a docstring."""
    return [
        (name, member)
        for base in reversed([base for base in each.__mro__ if base is not object])
        for name, member in vars(base).items()
        if not name.startswith("_")
        and (inspect.isroutine(member) or isinstance(member, property))
        and inspect.getdoc(member)
    ]


def _signature(name: str, each: Any) -> str:
    """Return a signature as a block, one parameter a line where it is long."""
    signature = inspect.signature(each)
    text = _tidy(f"{name}{signature}")
    if len(text) > 100:
        lines, stars = [], False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and not stars:
                lines.append("    *,")
                stars = True
            lines.append(f"    {_tidy(str(parameter))},")
        returned = signature.return_annotation
        arrow = "" if returned is signature.empty else str(signature).rpartition(" -> ")[2]
        lines = [f"{name}(", *lines, f"){_tidy(f' -> {arrow}') if arrow else ''}"]
        text = "\n".join(lines)
    return f"```\n{text}\n```"


def _tidy(text: str) -> str:
    """Return a signature without addresses, quotes around types and paths of modules."""
    text = _ADDRESS.sub("", text).replace("'", "").replace('"', "")
    return _NAME.sub(r"\1", text)


def _text(each: Any) -> str:
    """Return what a docstring says before its example, as Markdown."""
    text = (inspect.getdoc(each) or "").partition(">>>")[0].strip()
    outside = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "\\<") for part in outside)


if __name__ == "__main__":
    PAGE.write_text(page())
