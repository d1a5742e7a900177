"""docs/from-the-lesson.md: its alignment buffers, its table of crashes, and the tests it names."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from types import ModuleType
from typing import Any

import pytest
import typer.main
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.cli.main import application
from tests.support.documents.pages import ROOT, blocks_of

PAGE = "docs/from-the-lesson.md"
TEXT = (ROOT / PAGE).read_text()

Arrivals = list[tuple[str, Any]]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's Python block defines; its own assertions hold."""
    [text] = blocks_of(PAGE, "python")
    defined: dict[str, Any] = {}
    exec(compile(text, PAGE, "exec"), defined)  # noqa: S102 - it is ours
    return defined


amounts = st.lists(st.integers(-10, 10), max_size=5)
"""Of one channel, before or behind its barrier."""


@given(st.data(), st.lists(st.tuples(amounts, amounts), min_size=1, max_size=4))
def test_right_buffer_saves_what_is_before_the_barriers(
    names: dict[str, Any], data: st.DataObject, parts: list[tuple[list[int], list[int]]]
) -> None:
    channels = {str(n): [*first, names["BARRIER"], *then] for n, (first, then) in enumerate(parts)}
    turns = data.draw(st.permutations([name for name, kept in channels.items() for _ in kept]))
    left = {name: iter(kept) for name, kept in channels.items()}
    arrivals: Arrivals = [(name, next(left[name])) for name in turns]

    saved, total = names["run"](arrivals, set(channels), names["right"])
    assert saved == sum(sum(first) for first, _ in parts)
    assert total == saved + sum(sum(then) for _, then in parts)


def test_inverted_buffer_loses_one_record_and_counts_another_twice(names: dict[str, Any]) -> None:
    arrivals, behind = names["arrivals"], sum(names["behind_a"])
    recovered = {
        name: names["run"](arrivals, {"a", "b"}, names[name])[0] + behind
        for name in ("right", "inverted")
    }
    truth = names["e917"] + names["e918"] + names["e919"] + names["e920"]
    assert recovered["right"] == truth == 22_000
    assert recovered["inverted"] == truth - names["e919"] + names["e920"] == -6_000


class Fault(Enum):
    """What else happens between the crash and the restart."""

    NONE = auto()
    EXPIRED = auto()
    """The sink's server gives up a prepared transaction."""
    OLDER = auto()
    """The job restarts from the checkpoint before, or without one."""


@dataclass
class World:
    """What outlives a crash of a job that publishes one batch by two-phase commit."""

    opened: set[int] = field(default_factory=set)
    prepared: set[int] = field(default_factory=set)
    published: list[int] = field(default_factory=list)
    named: int | None = None
    """The transaction in the newest complete checkpoint; None before the batch's own."""
    numbers: Iterator[int] = field(default_factory=count)

    def batch(self) -> Iterator[str]:
        """Take the steps of the batch; stops after each, where the job may die."""
        transaction = next(self.numbers)
        self.opened.add(transaction)
        yield "write"
        self.opened.remove(transaction)
        self.prepared.add(transaction)
        yield "prepare"
        self.named = transaction
        yield "complete"
        self.publish(transaction)
        yield "publish"

    def publish(self, transaction: int) -> None:
        self.prepared.remove(transaction)
        self.published.append(transaction)

    def left(self) -> str:
        """Return what the sink holds at the moment of the crash."""
        if self.opened:
            return "an open transaction"
        if self.prepared:
            by = "no checkpoint" if self.named is None else "the checkpoint"
            return f"a prepared transaction that {by} names"
        return "what was published"

    def restart(self, fault: Fault) -> str:
        """Recover; returns how."""
        self.opened.clear()
        if fault is Fault.EXPIRED:
            self.prepared.clear()
        if fault is Fault.OLDER:
            self.named = None
        if self.named in self.prepared:
            assert self.named is not None
            self.publish(self.named)
            return "publishes it"
        if self.named in self.published:
            return "publishes it again, which must do nothing"
        if self.named is not None:
            return "finds nothing to publish"
        orphaned, done = bool(self.prepared), bool(self.published)
        self.prepared.clear()
        for _ in self.batch():
            pass
        if done:
            return "does the batch again, as a new transaction"
        again = "does the batch again"
        return f"must find it and roll it back, {again}" if orphaned else again


def two_phase(step: str, fault: Fault) -> tuple[str, str, str]:
    """Die after a step and restart: what is left, what the restart does, how often published."""
    world = World()
    for taken in world.batch():
        if taken == step:
            break
    left = world.left()
    restart = world.restart(fault)
    assert not world.prepared
    return left, restart, str(len(world.published))


MOMENTS = {
    "rows are being written": ("write", Fault.NONE),
    "all rows are written": ("prepare", Fault.NONE),
    "it is decided, not published": ("complete", Fault.NONE),
    "the same, and the transaction expires": ("complete", Fault.EXPIRED),
    "it is published, not recorded": ("publish", Fault.NONE),
    "later, and an older checkpoint is restored": ("publish", Fault.OLDER),
    "later, and the checkpoint is lost": ("publish", Fault.OLDER),
}


def _table() -> list[list[str]]:
    """Return the rows of the table of crashes, by their cells."""
    _, _, rows = TEXT.partition("| it dies when |")
    lines = rows.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_table_of_crashes_says_what_two_phase_commit_does() -> None:
    reply = {row[0]: tuple(row[1:4]) for row in _table()}
    assert reply == {moment: two_phase(*where) for moment, where in MOMENTS.items()}


def _loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("named_by_the_page", ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _points(cell: str) -> list[str]:
    """Return the failpoints that a cell names, as `S2 to S5` or as `S8, S9`."""
    results = [int(number) for number in re.findall(r"\bS(\d)\b", cell)]
    if " to " in cell and results:
        results = list(range(results[0], results[1] + 1))
    return [f"S{number}" for number in results]


def test_crash_table_matches_the_outbox_fault_tests() -> None:
    faults = _loaded("tests/faults/test_sink_faults.py")
    reply = {point: row[5] for row in _table() for point in _points(row[4])}
    assert reply.keys() == set(faults.POINTS)
    for point, restart in reply.items():
        assert ("`Replayed`" in restart) == (point in faults.COMMITTED), point
        assert ("`Written`" in restart) == (point not in faults.COMMITTED), point
    assert {row[6] for row in _table()} == {"1", "-"}


def test_tests_that_the_page_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)
    assert named
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    listed = re.findall(r"^- \*\*(\w)\*\*", TEXT, re.MULTILINE)
    used = {letter for row in _table() for letter in re.findall(r"\b[a-z]\b", row[7])}
    assert used == set(listed)


def _options(command: Any) -> set[str]:
    own = {name for each in command.params for name in each.opts}
    return own.union(*(_options(each) for each in getattr(command, "commands", {}).values()))


def test_options_that_the_page_names_are_those_of_the_job() -> None:
    job = typer.main.get_command(application([])).commands["job"]  # type: ignore[attr-defined]
    settings = TEXT.partition("\n## Settings\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", settings))
    assert named
    assert named <= _options(job)
