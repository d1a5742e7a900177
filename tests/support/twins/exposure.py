"""The batch of one merchant as `docs/models/Exposure.tla` has it: `Step` and what it is made of.

A number is a time; windows are numbered from 1, and each is two long.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

LENGTH = 2
"""Of a window."""


class Row(NamedTuple):
    """An event."""

    id: int
    at: int
    amount: int

    @property
    def window(self) -> int:
        return self.at // LENGTH + 1


class ByHand(NamedTuple):
    """A decision of a person."""

    act: str
    at: int
    until: int


NO_HAND = ByHand("none", 0, 0)


class Window(NamedTuple):
    """A window in state; `there` is false for one that is not."""

    there: bool = False
    sum: int = 0
    revision: int = 0


class Decided(NamedTuple):
    """A decision of a window."""

    act: str
    w: int


class Memory(NamedTuple):
    """What the job knows of a merchant between two batches."""

    win: tuple[Window, ...]
    """By number, less one."""
    ids: frozenset[int] = frozenset()
    latest: int = 0
    held: str = "no"
    """By nobody, a `window` or a `hand`."""
    hand: int = 0
    """The sequence of the newest decision by hand that the job has learned."""
    by: ByHand = NO_HAND
    muted: bool = False
    """A person has released: no window blocks yet."""

    @classmethod
    def begun(cls, windows: int) -> "Memory":
        return cls((Window(),) * windows)


@dataclass(frozen=True)
class Rules:
    """The constants of the model."""

    windows: int
    cutoff: int
    limit: int
    release_level: int

    @classmethod
    def of(cls, constants: Mapping[str, Any]) -> "Rules":
        return cls(
            len(constants["Windows"]),
            constants["Cutoff"],
            constants["Limit"],
            constants["ReleaseLevel"],
        )

    def accepts(self, window: int, mark: int) -> bool:
        """Return whether a window still takes corrections at a watermark."""
        return LENGTH * window + self.cutoff > mark


class Result(NamedTuple):
    """What a batch leads to."""

    memory: Memory
    did: tuple[Decided, ...]
    shown: tuple[tuple[int, Window], ...]
    """Each emission: the window's number, and the window."""
    applied: frozenset[Row]


def step(
    rules: Rules,
    memory: Memory,
    rows: frozenset[Row],
    mark: int,
    decision: ByHand = NO_HAND,
    sequence: int = 0,
    before: Iterable[Row] = (),
) -> Result:
    """Return `Step`; `before` has every row whose id the memory may have."""
    memory = _learned(memory, decision, sequence)
    applied = frozenset(
        row for row in rows if row.id not in memory.ids and rules.accepts(row.window, mark)
    )
    changed = {n for n in range(1, rules.windows + 1) if _sum(applied, n)}
    memory = _absorbed(memory, applied)
    did: list[Decided] = []
    shown: list[tuple[int, Window]] = []
    for number in range(1, rules.windows + 1):
        window = memory.win[number - 1]
        if not (_is_due(window, number, mark, changed) or _closes_empty(memory, number, mark)):
            continue
        window = Window(True, window.sum, window.revision + 1)
        memory = memory._replace(win=_with(memory.win, number, window))
        shown.append((number, window))
        if number >= memory.latest:
            memory, act = _judged(rules, memory, number, window.sum)
            did += [Decided(act, number)] if act else []
    memory = _forgotten(rules, memory, mark, {*rows, *before})
    return Result(memory, tuple(did), tuple(shown), applied)


def _learned(memory: Memory, decision: ByHand, sequence: int) -> Memory:
    if sequence <= memory.hand:
        return memory
    blocks = decision.act == "block"
    return memory._replace(
        hand=sequence, by=decision, held="hand" if blocks else "no", muted=not blocks
    )


def _absorbed(memory: Memory, rows: frozenset[Row]) -> Memory:
    win = memory.win
    for number in {row.window for row in rows}:
        old = win[number - 1]
        win = _with(win, number, Window(True, old.sum + _sum(rows, number), old.revision))
    return memory._replace(win=win, ids=memory.ids | {row.id for row in rows})


def _is_due(window: Window, number: int, mark: int, changed: set[int]) -> bool:
    if not window.there:
        return False
    return number in changed if window.revision else LENGTH * number <= mark


def _closes_empty(memory: Memory, number: int, mark: int) -> bool:
    end = LENGTH * number
    if memory.win[number - 1].there or end > mark or number <= memory.latest:
        return False
    if memory.held == "no":
        return memory.muted and end > memory.by.at
    return end >= memory.by.until if memory.held == "hand" else number == memory.latest + 1


def _judged(rules: Rules, memory: Memory, number: int, amount: int) -> tuple[Memory, str | None]:
    end, by = LENGTH * number, memory.by
    is_over, is_under = amount > rules.limit, amount <= rules.release_level
    is_blocked = memory.held == "hand" and end < by.until
    is_muted = memory.muted and end < by.until
    act = None
    if memory.held == "no" and is_over and not is_muted:
        act = "block"
    elif memory.held != "no" and is_under and not is_blocked:
        act = "release"
    held = {"block": "window", "release": "no"}.get(
        act or "", memory.held if is_blocked or memory.held == "no" else "window"
    )
    muted = memory.muted and not (end >= by.until or (end > by.at and not is_over))
    return memory._replace(latest=max(number, memory.latest), held=held, muted=muted), act


def _forgotten(rules: Rules, memory: Memory, mark: int, rows: set[Row]) -> Memory:
    stays = {
        number
        for number, window in enumerate(memory.win, start=1)
        if window.there and rules.accepts(number, mark)
    }
    return memory._replace(
        win=tuple(w if n in stays else Window() for n, w in enumerate(memory.win, start=1)),
        ids=frozenset(row.id for row in rows if row.id in memory.ids and row.window in stays),
        latest=0 if not stays and memory.held == "no" and not memory.muted else memory.latest,
    )


def _with(win: tuple[Window, ...], number: int, window: Window) -> tuple[Window, ...]:
    return (*win[: number - 1], window, *win[number:])


def _sum(rows: Iterable[Row], number: int) -> int:
    return sum(row.amount for row in rows if row.window == number)
