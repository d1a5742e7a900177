"""The errors of the product, read from its source: code, exit code and text of each.

`make errors` writes them to `tests/contract/vectors/errors.txt`, and to a page (`error_index.py`).
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.sink.contract.exits import ExitCode

ROOT = Path(__file__).parents[3]
PACKAGES = ("deploy", "dispatcher", "migrations", "sink", "spark_app")
SNAPSHOT = ROOT / "tests" / "contract" / "vectors" / "errors.txt"

OF_THE_COMMAND = {"usage": "2", "aborted": "1", "system_error": "1"}
"""Codes of `cli/main.py`, for what is no `CommandError`."""

CAUSE = "(its cause's)"
"""In place of a code or an exit code that another error decides."""

_CODE = re.compile(r"[a-z]+(_[a-z]+)*")


class Error(NamedTuple):
    """One place that makes an error. `{}` in its text stands for what differs."""

    code: str | None
    exit_code: str
    text: str
    place: str

    def __str__(self) -> str:
        return f"{self.code} {self.exit_code} {self.text}"

    def fault(self) -> str | None:
        """Return what is wrong with its code."""
        if self.code is None:
            return f"{self.place} has no literal code"
        if self.code != CAUSE and not _CODE.fullmatch(self.code):
            return f"{self.place}: {self.code} is not in snake_case"
        return None


@dataclass
class _Module:
    """A file, and what its names stand for: `module.name` of what it imports or defines."""

    name: str
    path: str
    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """Its constants that are texts."""

    def full_name(self, node: ast.expr) -> str:
        match node:
            case ast.Name():
                return self.names.get(node.id, f"{self.name}.{node.id}")
            case ast.Attribute():
                return f"{self.full_name(node.value)}.{node.attr}"
        return ""


class _Maker(NamedTuple):
    """A function that does nothing but to return or raise an error."""

    call: ast.Call
    parameters: list[str]

    @property
    def takes_code(self) -> bool:
        code = _keyword(self.call, "code")
        return isinstance(code, ast.Name) and code.id in self.parameters

    def texts(self, call: ast.Call, texts: dict[str, str]) -> dict[str, str]:
        """Return the text of each argument that `call` gives."""
        given = dict(zip(self.parameters, call.args, strict=False))
        given |= {each.arg: each.value for each in call.keywords if each.arg is not None}
        return {name: _text(value, texts) for name, value in given.items()}


def errors() -> list[Error]:
    """Return every error of the product."""
    modules = list(_modules())
    classes = _classes(modules)
    makers = dict(_makers(modules, classes))
    made = {maker.call for maker in makers.values()}
    return [
        error
        for module in modules
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call) and call not in made
        for error in _errors_of(module, call, classes, makers)
    ]


def _modules() -> Iterator[_Module]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT)
            dotted = ".".join(("holdfast", *place.with_suffix("").parts))
            dotted = dotted.removesuffix(".__init__")
            module = _Module(dotted, str(place), ast.parse(path.read_text()))
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom):
                    for each in node.names:
                        module.names[each.asname or each.name] = f"{node.module}.{each.name}"
            for node in module.tree.body:
                match node:
                    case ast.Assign(
                        targets=[ast.Name() as name], value=ast.Constant(value=str() as text)
                    ):
                        module.texts[name.id] = text
            yield module


def _classes(modules: list[_Module]) -> dict[str, ast.ClassDef | None]:
    """Return `CommandError` and the classes below it."""
    found: dict[str, ast.ClassDef | None] = {"holdfast.sink.contract.exits.CommandError": None}
    defined = [
        (module, node)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    ]
    while new := {
        f"{module.name}.{node.name}": node
        for module, node in defined
        if f"{module.name}.{node.name}" not in found
        and any(module.full_name(base) in found for base in node.bases)
    }:
        found |= new
    return found


def _has_own_text(class_: ast.ClassDef | None) -> bool:
    return class_ is not None and any(
        isinstance(node, ast.FunctionDef) and node.name == "__init__" for node in class_.body
    )


def _makers(
    modules: list[_Module], classes: dict[str, ast.ClassDef | None]
) -> Iterator[tuple[str, _Maker]]:
    for module in modules:
        for function in module.tree.body:
            if not isinstance(function, ast.FunctionDef):
                continue
            match [each for each in function.body if not _is_docstring(each)]:
                case [ast.Return(value=ast.Call() as call) | ast.Raise(exc=ast.Call() as call)]:
                    if module.full_name(call.func) in classes:
                        arguments = (*function.args.args, *function.args.kwonlyargs)
                        maker = _Maker(call, [each.arg for each in arguments])
                        yield f"{module.name}.{function.name}", maker


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _errors_of(
    module: _Module,
    call: ast.Call,
    classes: dict[str, ast.ClassDef | None],
    makers: dict[str, _Maker],
) -> Iterator[Error]:
    place = f"{module.path}:{call.lineno}"
    name = module.full_name(call.func)
    match _keyword(call, "code"):
        case ast.IfExp() as either:
            for code in (either.body, either.orelse):
                keywords = [each for each in call.keywords if each.arg != "code"]
                one = ast.Call(call.func, call.args, [*keywords, ast.keyword("code", code)])
                one.lineno = call.lineno
                yield from _errors_of(module, one, classes, makers)
            return
    if name in classes and not _has_own_text(classes[name]):
        yield Error(_code(call), _exit_code(call), _text(call.args[0], module.texts), place)
    elif name in makers:
        maker = makers[name]
        code = _code(call if maker.takes_code else maker.call)
        texts = module.texts | maker.texts(call, module.texts)
        yield Error(code, _exit_code(maker.call), _text(maker.call.args[0], texts), place)
    elif name.endswith("__init__") and _is_super_of(call, classes):
        yield Error(_code(call), _exit_code(call), _text(call.args[0], module.texts), place)


def _is_super_of(call: ast.Call, classes: dict[str, ast.ClassDef | None]) -> bool:
    return any(
        node is call
        for class_ in classes.values()
        if class_ is not None
        for node in ast.walk(class_)
    )


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def _code(call: ast.Call) -> str | None:
    match _keyword(call, "code"):
        case ast.Constant(value=str() as code):
            return code
        case ast.Attribute(attr="code"):
            return CAUSE
    return None


def _exit_code(call: ast.Call) -> str:
    match call.args[1] if len(call.args) > 1 else _keyword(call, "exit_code"):
        case None:
            return str(ExitCode.FAILED.value)
        case ast.Attribute(value=ast.Name(id="ExitCode"), attr=name):
            return str(ExitCode[name].value)
    return CAUSE


def _text(node: ast.expr, known: dict[str, str]) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text.replace("\n", "\\n")
        case ast.Name() if node.id in known:
            return known[node.id]
        case ast.FormattedValue():
            return _text(node.value, known)
        case ast.JoinedStr():
            return "".join(_text(each, known) for each in node.values)
        case ast.BinOp(op=ast.Add()):
            return _text(node.left, known) + _text(node.right, known)
    return "{}"


def lines(found: list[Error]) -> list[str]:
    """Return the lines of the snapshot, each once."""
    return sorted({str(error) for error in found})
