"""What the rows of a batch lead to, recomputed plainly: the half of the sink's twin about rows.

The model knows events and keys. The tables have more: numbered entries, repeats and overtaken
decisions that are suppressed, rows that are quarantined or put back by hand. All of it follows from
the batches in the order in which they were written, so a database is a tuple of batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

FAR: Final = 9
"""The window of a decision that is dated beyond the database's clock."""

HAND: Final = "hand"
"""The query of what people put back."""


@dataclass(frozen=True, order=True)
class Decision:
    """One row of a batch. Its key is subject, window and action; `amount` is its content."""

    subject: str
    window: int
    action: str
    amount: int = 1
    is_fit: bool = True
    """False: its amount has no canonical form."""
    dated: int | None = None
    """The window at whose end it is dated by hand."""

    @property
    def key(self) -> str:
        """Its key by name."""
        return f"{self.subject}@{self.window} {self.action}"

    @property
    def at(self) -> int:
        """The window at whose end it occurred."""
        return self.window if self.dated is None else self.dated

    def __str__(self) -> str:
        amount = "" if self.amount == 1 else f" x{self.amount}"
        dated = "" if self.dated is None else f" dated {self.dated}"
        return f"{self.key}{amount}{dated}{'' if self.is_fit else ' unfit'}"


class Entry(NamedTuple):
    """A numbered decision."""

    sequence: int
    decision: Decision


@dataclass(frozen=True)
class Content:
    """What a batch writes."""

    rows: tuple[Decision, ...] = ()
    """In any order: these are what the digest is of."""
    entries: tuple[Entry, ...] = ()
    suppressed: tuple[tuple[Decision, str], ...] = ()
    quarantined: tuple[tuple[Decision, str], ...] = ()
    duplicates: int = 0
    differing: int = 0

    @property
    def recorded(self) -> Iterator[Decision]:
        """The decisions whose keys it records."""
        yield from (each.decision for each in self.entries)
        yield from (decision for decision, _ in self.suppressed)


def digest(rows: Iterable[Decision]) -> str:
    """Return the name of a digest: the rows in any order."""
    counts = sorted(Counter(rows).items())
    return ", ".join(f"{count} * {row}" if count > 1 else str(row) for row, count in counts)


def written(before: Sequence[Content], rows: Iterable[Decision]) -> Content:
    """Return what a batch of these rows writes after the batches before."""
    rows = tuple(sorted(rows))
    firsts: dict[str, Decision] = {}
    duplicates, differing = 0, 0
    quarantined = [(row, "bad_data") for row in rows if not row.is_fit]
    for row in sorted((row for row in rows if row.is_fit), key=_order):
        first = firsts.setdefault(row.key, row)
        if first is row:
            continue
        if first.amount == row.amount:
            duplicates += 1
        else:
            quarantined.append((row, "key_conflict"))
    known = keys(before)
    fresh = []
    for row in firsts.values():
        if row.at == FAR:
            quarantined.append((row, "future_dated"))
        elif row.key in known:
            duplicates += 1
            differing += known[row.key] != row.amount
        else:
            fresh.append(row)
    entries, suppressed = _numbered(before, fresh)
    return Content(
        rows,
        tuple(entries),
        tuple(suppressed),
        tuple(sorted(quarantined)),
        duplicates,
        differing,
    )


def by_hand(before: Sequence[Content], row: Decision, *, keep_repeats: bool) -> Content | None:
    """Return what a row that is put back writes after the batches before; None: it is refused."""
    if not row.is_fit or row.at == FAR or row.key in keys(before):
        return None
    last = states(before).get(row.subject)
    if not keep_repeats and last is not None and (row.at < last.at or row.action == last.action):
        return None
    entry = Entry(sequences(before)[row.subject] + 1, row)
    return Content((row,), (entry,))


def _numbered(
    before: Sequence[Content], fresh: Iterable[Decision]
) -> tuple[list[Entry], list[tuple[Decision, str]]]:
    newest, last = states(before), sequences(before)
    types = {subject: state.action for subject, state in newest.items()}
    entries, suppressed = [], []
    for row in fresh:
        if row.subject in newest and row.at < newest[row.subject].at:
            suppressed.append((row, "overtaken"))
        elif types.get(row.subject) == row.action:
            suppressed.append((row, "repeated"))
        else:
            types[row.subject] = row.action
            last[row.subject] += 1
            entries.append(Entry(last[row.subject], row))
    return entries, suppressed


def _order(row: Decision) -> tuple[str, int, str, int]:
    return row.subject, row.at, row.key, row.amount


class State(NamedTuple):
    """The transition state of a subject: its last action, and the newest time of any entry."""

    action: str
    at: int


class Overtaken(NamedTuple):
    """The newest decision of a subject, as a person sees it before an older one follows it."""

    action: str
    at: int
    entry: tuple[int, str] | None
    """Its sequence and key; None once its day is dropped."""
    last_sequence: int


def overtaken(
    before: Sequence[Content],
    row: Decision,
    *,
    keep_repeats: bool,
    dated_by_hand: bool,
    pruned: int,
) -> Overtaken | None:
    """Return the decision that a row would overtake if it was put back; None: it is the newest."""
    newest = states(before).get(row.subject)
    if newest is None:
        return None
    if not keep_repeats and (row.at < newest.at or row.action == newest.action):
        return None
    entries = [
        entry
        for batch in before[pruned:]
        for entry in batch.entries
        if (entry.decision.subject, entry.decision.at) == (row.subject, newest.at)
    ]
    last = max(entries, default=None)
    action = newest.action if last is None else last.decision.action
    is_as_old = row.at == newest.at and row.action != action
    if row.at >= newest.at and not is_as_old and not dated_by_hand:
        return None
    entry = None if last is None else (last.sequence, last.decision.key)
    return Overtaken(action, newest.at, entry, sequences(before)[row.subject])


def keys(batches: Iterable[Content]) -> dict[str, int]:
    """Return the recorded keys, each with the amount it was recorded with."""
    return {row.key: row.amount for batch in batches for row in batch.recorded}


def sequences(batches: Iterable[Content]) -> Counter[str]:
    """Return the last sequence of each subject."""
    return Counter(entry.decision.subject for batch in batches for entry in batch.entries)


def states(batches: Iterable[Content]) -> dict[str, State]:
    """Return the transition state of each subject."""
    newest: dict[str, State] = {}
    for batch in batches:
        for _, row in sorted(batch.entries):
            before = newest.get(row.subject, State(row.action, row.at))
            newest[row.subject] = State(row.action, max(before.at, row.at))
    return newest


@dataclass
class Observed:
    """The rows of the sink's tables, by names."""

    streams: dict[str, tuple[str | None, int, str | None]] = field(default_factory=dict)
    """Adopted query, epoch and run."""
    batches: dict[str, tuple[str, int, str, int, int, int, int, int, int]] = field(
        default_factory=dict
    )
    """By `query/id`: run, epoch, digest, and the counts of rows, entries, duplicates, differing,
    suppressed, quarantined."""
    entries: dict[str, list[tuple[int, str, int, int, str]]] = field(default_factory=dict)
    """By subject: sequence, key, amount, window of its time, and batch."""
    keys: dict[str, str] = field(default_factory=dict)
    """The batch that recorded each key."""
    sequences: dict[str, int] = field(default_factory=dict)
    """The last of each subject."""
    states: dict[str, State] = field(default_factory=dict)
    """By subject."""
    suppressed: dict[tuple[str, str], str] = field(default_factory=dict)
    """By batch and key: the cause."""
    quarantine: list[tuple[str, str, str, int, str]] = field(default_factory=list)
    """Batch, row, reason, which of those that look the same, and resolution."""
    stages: list[tuple[int, int]] = field(default_factory=list)
    """Epoch and batch id of each."""
    diverged: list[tuple[str, str]] = field(default_factory=list)
    """Batch, and digest of its replay."""
    proposals: list[str] = field(default_factory=list)
    """Those that are open, in words."""

    def differences(self, other: "Observed") -> list[str]:
        """Return what differs, a line for each table: what this one has, and the other."""
        return [
            f"{name}: {value} here, {there} in the tables"
            for name, value in vars(self).items()
            if (there := vars(other)[name]) != value
        ]


def corrected(row: Decision, dated: int) -> Decision:
    """Return a quarantined row as a person corrects it: a fit amount, and a time that has come."""
    return replace(row, is_fit=True, dated=dated if row.at == FAR else row.dated)
