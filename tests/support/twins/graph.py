"""State graphs: of a model, as TLC dumps it, and of its twin, by breadth-first search.

A twin is a copy of a model in Python that runs beside a real database. A difference between the two
graphs is a state, or a step between two states, that only one of them has.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from tests.support import models
from tests.support.models import Constants, Model

Value = Any
"""A hashable value of TLA+: bool, int, str (also of a model value), frozenset, tuple, `Map`."""

SHOWN_MAX = 5
"""Maximum number of differences that are told."""

K = TypeVar("K")
V = TypeVar("V")
State = TypeVar("State")


class Map(dict[K, V]):
    """A function or a record of TLA+, which nothing changes."""

    _hash: int | None = None

    def __hash__(self) -> int:  # type: ignore[override]
        if self._hash is None:
            self._hash = hash(frozenset(self.items()))
        return self._hash

    def but(self, key: K, value: V) -> "Map[K, V]":
        """Return it with another value of one key: `[f EXCEPT ![key] = value]`."""
        return Map({**self, key: value})


@dataclass(frozen=True)
class Graph:
    """The states that can be reached, and the named steps between them."""

    initial: frozenset[Value]
    steps: Mapping[Value, frozenset[tuple[str, Value]]]
    """By state: the action and the state after it."""


def of_model(model: Model, constants: Constants) -> Graph:
    """Return the graph of a model at these constants, without symmetry."""
    with TemporaryDirectory(prefix="holdfast-graph-") as folder:
        path = Path(folder, "graph.dot")
        options = ["-dump", "dot,actionlabels", str(path)]
        models.explore(model, constants, options=options)
        return parse(path.read_text())


def of_twin(initial: State, steps: Callable[[State], Iterable[tuple[str, State]]]) -> Graph:
    """Return the graph of a twin; `steps` yields the action and the state after it."""
    known: dict[State, Value] = {initial: plain(initial)}
    found: dict[Value, frozenset[tuple[str, Value]]] = {}
    waiting = [initial]
    while waiting:
        state = waiting.pop()
        after = list(steps(state))
        for _, each in after:
            if each not in known:
                known[each] = plain(each)
                waiting.append(each)
        found[known[state]] = frozenset((name, known[each]) for name, each in after)
    return Graph(frozenset([known[initial]]), found)


def plain(value: Any) -> Value:
    """Return a value of a twin as `parse` returns that of a model: a `NamedTuple` is a record."""
    match value:
        case frozenset():
            return frozenset(map(plain, value))
        case dict():
            return Map({plain(key): plain(each) for key, each in value.items()})
        case tuple() if hasattr(value, "_asdict"):
            return Map({name: plain(each) for name, each in value._asdict().items()})
        case tuple():
            return tuple(map(plain, value))
    return value


_NODE = re.compile(r'^(-?\d+) \[label="((?:[^"\\]|\\.)*)"(,style = filled)?\];?$', re.MULTILINE)
_EDGE = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(\w+)', re.MULTILINE)
_VARIABLE = re.compile(r"^/\\ (\w+) = ", re.MULTILINE)
_ESCAPE = re.compile(r"\\(.)")
_TOKEN = re.compile(r'\s*("[^"]*"|-?\d+|\w+|<<|>>|\|->|:>|@@|[\[\](){},])')


def parse(dot: str) -> Graph:
    """Return the graph that TLC dumped with `dot,actionlabels`."""
    states, initial = {}, []
    for number, label, filled in _NODE.findall(dot):
        states[number] = _state(_ESCAPE.sub(lambda found: _escaped(found[1]), label))
        if filled:
            initial.append(states[number])
    steps: dict[Value, set[tuple[str, Value]]] = defaultdict(set)
    for before, after, action in _EDGE.findall(dot):
        steps[states[before]].add((action, states[after]))
    return Graph(
        frozenset(initial), {state: frozenset(steps.get(state, ())) for state in states.values()}
    )


def _escaped(letter: str) -> str:
    return "\n" if letter == "n" else letter


def _state(text: str) -> Value:
    _, *parts = _VARIABLE.split(text)
    return Map(
        {name: parse_value(value) for name, value in zip(parts[::2], parts[1::2], strict=True)}
    )


def parse_value(text: str) -> Value:
    """Return a value that TLC printed.

    >>> parse_value('[a |-> <<1, 2>>, b |-> (d1 :> {"x"} @@ d2 :> {})]')["b"]["d1"]
    frozenset({'x'})
    """
    tokens = _TOKEN.findall(text)
    value, rest = _value(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"unread: {tokens[rest:]}")
    return value


def _value(tokens: Sequence[str], at: int) -> tuple[Value, int]:
    token = tokens[at]
    match token:
        case "<<":
            items, at = _items(tokens, at + 1, ">>")
            return tuple(items), at
        case "{":
            items, at = _items(tokens, at + 1, "}")
            return frozenset(items), at
        case "[" | "(":
            return _map(tokens, at + 1, {"[": "]", "(": ")"}[token])
        case "TRUE" | "FALSE":
            return token == "TRUE", at + 1
    if token.startswith('"'):
        return token[1:-1], at + 1
    return int(token) if token.lstrip("-").isdecimal() else token, at + 1


def _items(tokens: Sequence[str], at: int, end: str) -> tuple[list[Value], int]:
    items = []
    while tokens[at] != end:
        value, at = _value(tokens, at)
        items.append(value)
        at += tokens[at] == ","
    return items, at + 1


def _map(tokens: Sequence[str], at: int, end: str) -> tuple[Value, int]:
    items = {}
    while tokens[at] != end:
        key, at = _value(tokens, at)
        items[key], at = _value(tokens, at + 1)
        at += tokens[at] in {",", "@@"}
    return Map(items), at + 1


def differences(model: Graph, twin: Graph) -> list[str]:
    """Return, for the states that are reached soonest, what only one of the two can do there."""
    if model.initial != twin.initial:
        return [f"begins otherwise: {_changes(*model.initial, *twin.initial)}"]
    told: list[str] = []
    paths: dict[Value, tuple[str, ...]] = dict.fromkeys(model.initial, ())
    for state in paths.copy():
        waiting = [state]
    while waiting and len(told) < SHOWN_MAX:
        following: list[Value] = []
        for state in waiting:
            here, beside = model.steps[state], twin.steps.get(state, frozenset())
            told += _differences(paths[state], state, here, beside)
            for action, after in here & beside:
                if after not in paths:
                    paths[after] = (*paths[state], action)
                    following.append(after)
        waiting = following
    return told[:SHOWN_MAX]


def _differences(
    path: Sequence[str],
    state: Value,
    model: frozenset[tuple[str, Value]],
    twin: frozenset[tuple[str, Value]],
) -> Iterator[str]:
    way = " > ".join(path) or "the beginning"
    for owner, steps in (("model", model - twin), ("twin", twin - model)):
        for action, after in sorted(steps, key=str):
            yield f"after {way}, only the {owner} has {action}: {_changes(state, after)}"


def _changes(before: Mapping[str, Value], after: Mapping[str, Value]) -> str:
    return "; ".join(
        f"{name} {before[name]} -> {after.get(name)}"
        for name in before
        if before[name] != after.get(name)
    )
