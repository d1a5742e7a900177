"""Counts of minutes as a series without gaps, for a chart. Pure."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sink.contract.states import Outcome


class Minute(NamedTuple):
    """What happened in one minute."""

    minute: datetime
    entries: int
    attempts: int
    deliveries: int
    outcomes: dict[str, int]


def series(
    since: datetime,
    at: datetime,
    tried: Iterable[tuple[int, str, int]],
    written: Iterable[tuple[int, int]],
) -> tuple[list[Minute], dict[str, Any]]:
    """Return each minute from `since`, a full one, to that of `at`, and the sums over all of them.

    `tried` has a minute (since 1970), an outcome and how many attempts, `written` a minute and how
    many entries. What a clock that was set back left behind `at` is not counted.
    """
    first, last = _number(since), _number(at)
    entries: Counter[int] = Counter()
    outcomes: dict[int, Counter[str]] = {}
    for minute, count in written:
        entries[minute] += count
    for minute, outcome, count in tried:
        outcomes.setdefault(minute, Counter())[outcome] += count
    rows = [
        _row(number, entries[number], outcomes.get(number, Counter()))
        for number in range(first, last + 1)
    ]
    total = sum((Counter(row.outcomes) for row in rows), Counter[str]())
    return rows, {
        "entries": sum(row.entries for row in rows),
        "attempts": total.total(),
        "deliveries": total[Outcome.DELIVERED.value],
        "outcomes": _known(total),
    }


def _number(moment: datetime) -> int:
    return int(moment.timestamp()) // 60


def _row(number: int, entries: int, outcomes: Counter[str]) -> Minute:
    minute = datetime.fromtimestamp(0, UTC) + timedelta(minutes=number)
    deliveries = outcomes[Outcome.DELIVERED.value]
    return Minute(minute, entries, outcomes.total(), deliveries, _known(outcomes))


def _known(outcomes: Counter[str]) -> dict[str, int]:
    return {each.value: outcomes[each.value] for each in Outcome if outcomes[each.value]}
