"""The states of the twin of the model Delivery: its constants and variables."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.models import Constants
from tests.support.twins.graph import Map

NONE = 0
"""Not a token."""


@dataclass(frozen=True)
class World:
    """The constants of the model that are no switches."""

    dispatchers: tuple[str, ...]
    subjects: tuple[str, ...]
    entries: int
    per_lane: int
    tries: int
    order_policy: str

    @classmethod
    def of(cls, constants: Constants) -> "World":
        """Return those of a table in docs/models."""
        return cls(
            tuple(constants["Dispatchers"]),
            tuple(constants["Subjects"]),
            constants["Entries"],
            constants["PerLane"],
            constants["Tries"],
            constants["OrderPolicy"],
        )

    @property
    def sequences(self) -> range:
        """The sequences that a subject may have."""
        return range(1, self.entries + 1)


class Lane(NamedTuple):
    """The row of a lane."""

    exists: bool = False
    delivered: int = 0
    last: int = 0
    due: bool = False
    token: int = NONE
    ended: bool = False
    claimed: int = 0
    steps: int = 0
    held: str = "no"


class Item(NamedTuple):
    """The item of a replay: an entry that is sent again beside its lane."""

    state: str
    subject: str
    sequence: int = 0
    token: int = NONE
    ended: bool = False
    steps: int = 0


class Process(NamedTuple):
    """What a dispatcher has in memory."""

    pc: str
    what: str
    subject: str
    token: int = NONE
    entries: tuple[int, ...] = ()
    done: int = 0
    request: str = "none"
    outcome: str = "none"
    stalled: bool = False


class Budget(NamedTuple):
    """How often each fault and verb may still happen."""

    faults: int
    replays: int
    cancels: int
    holds: int
    pauses: int


Counts = tuple[int, ...]
"""A number for each sequence."""
Words = tuple[str, ...]
"""A word for each sequence."""


class State(NamedTuple):
    """The variables of the model. A map is by subject or by dispatcher."""

    written: Map[str, frozenset[int]]
    routed: Map[str, frozenset[int]]
    lane: Map[str, Lane]
    dead: Map[str, Words]
    cancelled: Map[str, frozenset[int]]
    item: Item
    active: bool
    proc: Map[str, Process]
    late: Map[str, Counts]
    inbox: Map[str, Words]
    fence: Map[str, int]
    applied: Map[str, tuple[int, ...]]
    sent: Map[str, frozenset[int]]
    unknown: Map[str, Counts]
    failures: Map[str, Counts]
    duplicates: Map[str, Counts]
    resent: Map[str, Counts]
    twice: bool
    budget: Budget


def idle(w: World) -> Process:
    """Return the memory of a dispatcher that holds nothing."""
    return Process("idle", "lane", w.subjects[0])


def no_item(w: World) -> Item:
    """Return the item of no replay."""
    return Item("none", w.subjects[0])


def init(w: World, budget: Budget) -> State:
    """Return the first state."""

    def each(value: Any) -> Map[str, Any]:
        return Map(dict.fromkeys(w.subjects, value))

    numbers, words = (0,) * w.entries, ("none",) * w.entries
    return State(
        *(each(frozenset()), each(frozenset()), each(Lane()), each(words), each(frozenset())),
        *(no_item(w), True, Map(dict.fromkeys(w.dispatchers, idle(w)))),
        *(each(numbers), each(words), each(0), each(()), each(frozenset())),
        *(each(numbers), each(numbers), each(numbers), each(numbers)),
        twice=False,
        budget=budget,
    )
