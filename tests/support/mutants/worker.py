"""Runs the tests of one module against each of its mutants; prints how each ended.

Tests are collected once. Each mutant is a process that continues from there: in it the functions of
the module get the code of the mutant, and those tests run that call the function, the shortest
first, until one fails. Constants get the values of the mutant; if no test fails, and where a class
changes, the module is imported anew with the tests.
"""

import ast
import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest

OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:terminalreporter", "--no-header")

PRELOADED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Options where plugins of pytest were imported before it."""

KILLED, SURVIVED, NOT_APPLIED = 1, 0, 3
"""Exit codes of the process of a mutant."""

SECONDS_MIN, TIMES_MAX = 20, 10
"""A mutant has at least these seconds of the processor, or this many times those of its tests."""

WAIT_SECONDS_MAX = 900.0
"""For a mutant that waits for what does not come, on a machine that is busy."""

Mutant = dict[str, Any]
"""As generate.py prints it."""


def module_name(file: str) -> str:
    """Return the name under which a file of the tree is imported."""
    parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(
        ["holdfast", *(parts[1:] if parts[:2] == ["dispatcher", "receiver"] else parts)]
    )


@dataclass
class Baseline:
    """What the tests do without a change."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    """Ids of the tests that call each function of the module, by its name."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each test takes."""
    modules: list[str] = field(default_factory=list)
    """What was imported, of other projects."""
    failed: list[str] = field(default_factory=list)


def in_child(work: Callable[[], int], seconds: float | None = None) -> int:
    """Return the process id of a child that does this and exits with its result, silently.

    It is ended after these seconds of the processor.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        if seconds is not None:
            most = math.ceil(SECONDS_MIN + TIMES_MAX * seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        code = work()
    except BaseException:  # noqa: BLE001 - the code of the exit tells it
        code = KILLED
    finally:
        os._exit(code)


class Children:
    """Children of which a few run at once."""

    def __init__(self, jobs: int, done: Callable[[int, int | None], None]) -> None:
        """`done` gets the number of each, and its exit code; None if it took too long."""
        self._jobs, self._done = jobs, done
        self._running: dict[int, tuple[int, float]] = {}

    def start(self, number: int, seconds: float, work: Callable[[], int]) -> None:
        """Start one as soon as there is room; its tests take these seconds of the processor."""
        while len(self._running) >= self._jobs:
            self._reap()
        until = time.monotonic() + WAIT_SECONDS_MAX
        self._running[in_child(work, seconds)] = (number, until)

    def finish(self) -> None:
        """Wait for all."""
        while self._running:
            self._reap()

    def _reap(self) -> None:
        for pid, (number, until) in list(self._running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = not ended and time.monotonic() > until
            if late:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if ended or late:
                del self._running[pid]
                code = os.waitstatus_to_exitcode(status) if ended else None
                self._done(number, code)
                return
        select.select([], [], [], 0.005)


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield all code within this, and this."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def functions_of(file: str) -> dict[str, list[FunctionType]]:
    """Return the living functions of a file by their qualified names."""
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == file:
            found[each.__code__.co_qualname].append(each)
    return found


def apply(file: str, mutant: Mutant, functions: dict[str, list[FunctionType]]) -> bool:
    """Give the living function of a mutant its code; returns whether that was possible."""
    compiled = compile(mutant["source"], file, "exec", dont_inherit=True)
    new = [each for each in codes(compiled) if each.co_qualname == mutant["function"]]
    old = functions.get(mutant["function"])
    if len(new) != 1 or not old:
        return False
    try:
        for function in old:
            function.__code__ = new[0]
    except ValueError:  # a closure over other names
        return False
    return True


def assign(file: str, mutant: Mutant) -> bool:
    """Give the constants of a mutant their values, also where they were imported by their names.

    Returns whether that was possible: a class is not made again.
    """
    module = sys.modules[mutant["module"]]
    tree = ast.parse(mutant["source"])
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tree.body = [each for each in tree.body if not isinstance(each, definitions)]
    values = dict(vars(module))
    exec(compile(tree, file, "exec", dont_inherit=True), values)  # noqa: S102
    old = dict(vars(module))
    changed = {name for name, each in old.items() if repr(values[name]) != repr(each)}
    for other in [each for each in sys.modules.values() if isinstance(each, ModuleType)]:
        for name in changed & vars(other).keys():
            if vars(other)[name] is old[name]:
                setattr(other, name, values[name])
    return bool(changed)


class Loader(SourceFileLoader):
    """Loads a module with the text of a mutant."""

    def __init__(self, name: str, file: str, source: str) -> None:
        super().__init__(name, file)
        self._compiled = compile(source, file, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the mutant."""
        del fullname
        return self._compiled


class Imported(MetaPathFinder):
    """Imports a module with the text of a mutant."""

    def __init__(self, name: str, file: str, source: str) -> None:
        self._name, self._loader = name, Loader(name, file, source)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find that module only."""
        del path, target
        return spec_from_loader(fullname, self._loader) if fullname == self._name else None


class Tests:
    """Plugin of pytest: takes over once tests are collected."""

    def __init__(
        self, file: str, mutants: list[Mutant], children: Children, to: "os.PathLike[str]"
    ) -> None:
        self._file, self._mutants, self._children, self._to = file, mutants, children, Path(to)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests as they are, then those of each mutant."""
        pid = in_child(lambda: self._measure(session))
        os.waitpid(pid, 0)
        baseline = Baseline(**json.loads(self._to.read_text()))
        if baseline.failed:
            return True
        items = {item.nodeid: item for item in session.items}
        self._functions = functions_of(self._file)
        gc.freeze()  # a child that collects garbage would copy every page
        name = module_name(str(Path(self._file).relative_to(Path.cwd())))
        for number, mutant in enumerate(self._mutants):
            called = baseline.tests.get(mutant["function"], []) if mutant["in_body"] else items
            tests = [items[test] for test in sorted(called, key=baseline.seconds.__getitem__)]
            seconds = sum(baseline.seconds[each.nodeid] for each in tests)
            work = partial(self._run, session, mutant | {"module": name}, tests)
            self._children.start(number, seconds, work)
        self._children.finish()
        return True

    def _run(self, session: pytest.Session, mutant: Mutant, tests: list[pytest.Item]) -> int:
        if mutant["in_body"]:
            applied = apply(self._file, mutant, self._functions)
        else:
            applied = assign(self._file, mutant)
        if not applied:
            return NOT_APPLIED
        for test in tests:
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=None)
            if session.testsfailed:
                return KILLED
        # What was made of a constant before is as it was.
        return SURVIVED if mutant["in_body"] else NOT_APPLIED

    def _measure(self, session: pytest.Session) -> int:
        """Run each test and store what it calls."""
        baseline = Baseline()
        called: set[str] = set()

        def profile(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename == self._file:
                called.add(frame.f_code.co_qualname.partition(".<locals>")[0])

        tests = defaultdict(list)
        threading.setprofile(profile)
        for item in session.items:
            called.clear()
            failed, begun = session.testsfailed, time.process_time()
            sys.setprofile(profile)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            sys.setprofile(None)
            baseline.seconds[item.nodeid] = time.process_time() - begun
            if session.testsfailed > failed:
                baseline.failed.append(item.nodeid)
            for name in called:
                tests[name].append(item.nodeid)
        baseline.tests = tests
        baseline.modules = [
            name
            for name in sys.modules
            if name.partition(".")[0] not in {"holdfast", "tests", "__main__", "conftest"}
            and not name.partition(".")[0].startswith("test_")
        ]
        self._to.write_text(json.dumps(vars(baseline)))
        return 0


class Sorted:
    """Plugin of pytest: the shortest tests first."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests."""
        items.sort(key=lambda item: self._seconds.get(item.nodeid, 0.0))


def controls(file: str, mutants: list[Mutant]) -> list[Mutant]:
    """Return mutants that change nothing, of either kind: no test may fail."""
    text = Path(file).read_text()
    first = next((each for each in mutants if each["in_body"]), None)
    kinds = [False] * any(not each["in_body"] for each in mutants) + [True] * (first is not None)
    return [
        {"function": first["function"] if first and kind else "", "in_body": kind, "source": text}
        for kind in kinds
    ]


def run(file: str, mutants: list[Mutant], tests: list[str], *, jobs: int, folder: Path) -> None:
    """Print the number and the exit code of each mutant, a line each."""
    path = str(Path(file).resolve())
    count = len(mutants)
    mutants = [*mutants, *controls(file, mutants)]
    anew: list[int] = []

    def done(number: int, code: int | None) -> None:
        if code == NOT_APPLIED:
            anew.append(number)
            return
        if number >= count:
            if code:
                sys.exit(f"{file} without a change ended with {code}")
            return
        sys.stdout.write(f"{number} {'late' if code is None else code}\n")
        sys.stdout.flush()

    known = folder / "baseline.json"
    plugin = Tests(path, mutants, Children(jobs, done), known)
    # In a child, so that this process has imported nothing of the project.
    again = folder / "anew.json"

    def collected() -> int:
        pytest.main([*OPTIONS, *tests], plugins=[plugin])
        again.write_text(json.dumps(anew))
        return 0

    pid = os.fork()
    if not pid:
        os._exit(collected())
    os.waitpid(pid, 0)
    baseline = Baseline(**json.loads(known.read_text()))
    if baseline.failed:
        sys.exit(f"fails as it is: {baseline.failed[0]}")
    for name in baseline.modules:
        with suppress(Exception):
            importlib.import_module(name)
    children = Children(jobs, done)
    total = sum(baseline.seconds.values())
    for number in json.loads(again.read_text()):
        source = mutants[number]["source"]

        def anew_run(source: str = source) -> int:
            sys.meta_path.insert(0, Imported(module_name(file), path, source))
            return int(
                pytest.main([*OPTIONS, *PRELOADED, *tests], plugins=[Sorted(baseline.seconds)]) != 0
            )

        children.start(number, total, anew_run)
    children.finish()


if __name__ == "__main__":
    request = json.load(sys.stdin)
    run(
        request["file"],
        request["mutants"],
        request["tests"],
        jobs=request["jobs"],
        folder=Path(request["folder"]),
    )
