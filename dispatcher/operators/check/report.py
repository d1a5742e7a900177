"""What a check of a live database looked at, and what it found."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from dispatcher.operators.check.rules import Rule
from dispatcher.shared.value import value


@value
class Violation:
    """One row that violates a rule; None where it has no such thing."""

    rule: Rule
    detail: str
    endpoint: str | None = None
    subject: str | None = None
    sequence: int | None = None
    key: str | None = None
    stream: str | None = None
    batch_id: int | None = None


@dataclass(slots=True)
class Checked:
    """What was looked at, and every rule that is violated with its first rows."""

    limit: int
    """How many rows are kept of each rule."""

    counted: Counter[str] = field(default_factory=Counter)
    """Rows looked at, and what is worth knowing of them, by name: `entries`, `unknown_outcomes`."""

    oldest: dict[str, datetime] = field(default_factory=dict)
    """The earliest moment of some of what was counted, by the same names."""

    violated: Counter[Rule] = field(default_factory=Counter)
    kept: dict[Rule, list[Violation]] = field(default_factory=dict)

    def count(self, name: str, count: int, moment: datetime | None = None) -> None:
        """Count what was looked at."""
        self.counted[name] += count
        if moment is not None:
            self.oldest[name] = min(moment, self.oldest.get(name, moment))

    def found(self, rule: Rule, count: int, rows: Sequence[Violation]) -> None:
        """Count violations of a rule, of which `rows` are the first."""
        self.violated[rule] += count
        kept = self.kept.setdefault(rule, [])
        kept.extend(rows[: self.limit - len(kept)])

    def add(self, other: "Checked") -> None:
        """Count what another piece found."""
        self.counted.update(other.counted)
        for name, moment in other.oldest.items():
            self.count(name, 0, moment)
        for rule, count in other.violated.items():
            self.found(rule, count, other.kept.get(rule, []))

    @property
    def holds(self) -> bool:
        """Whether no rule is violated."""
        return not self.violated.total()

    @property
    def empty(self) -> bool:
        """Whether nothing of the time itself was there: no batch, no entry, no attempt."""
        return not any(self.counted[name] for name in ("batches", "deliveries", "attempts"))


def unbroken_since(days: Sequence[date]) -> datetime:
    """Return the beginning of the first day from which on no day up to the last is missing.

    Days are UTC. Days are dropped one by one, and one may stay among others that are gone.

    >>> unbroken_since([date(2026, 11, 1), date(2026, 11, 3), date(2026, 11, 4)]).isoformat()
    '2026-11-03T00:00:00+00:00'
    """
    there, day = set(days), max(days)
    while day - timedelta(days=1) in there:
        day -= timedelta(days=1)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def next_width(width: int, seconds: float, wanted: float) -> int:
    """Return how much to look at next, after `width` took `seconds`, to come near `wanted` seconds.

    At most four times as much, and at least 1.

    >>> next_width(1000, 0.1, 1.0), next_width(1000, 1.0, 1.0), next_width(1000, 8.0, 1.0)
    (4000, 1000, 125)
    """
    return max(1, int(width * min(4.0, wanted / max(seconds, 0.001))))
