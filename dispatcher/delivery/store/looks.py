"""Where a claim looks: ranges of the index of due lanes, so that its cost does not grow.

An index keeps the entries of rows that were changed until nobody can see them any more. While some
session holds an old snapshot, that is never, and a scan that begins at the front walks over all of
them. What was claimed lies in front, so the next look begins where the last one came to. Lanes
that became due there afterwards (a long transaction, a claim that was rolled back) are found by a
look at the whole, which comes the more seldom the longer it takes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dispatcher.shared.clock import seconds

BEGINNING = datetime.min.replace(tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)

SLACK = timedelta(seconds=0.5)
"""How far a look begins before what was found last: transactions commit in another order."""

WHOLE_SECONDS = 1.0
"""The time between two looks at the whole, at least."""

WHOLE_SHARE = 20
"""The time between two looks at the whole, in multiples of what the last one took."""

WHOLE_SECONDS_MAX = 10.0
"""The time between two looks at the whole, at most: what one took may be a wait for a lock."""

FAIR_EVERY = 8
"""Each so-manieth claim begins with the least urgent lanes, so that a flood of others does not
keep them for ever."""


@dataclass(frozen=True, slots=True)
class Look:
    """Lanes of one priority that became due from `due_from` until before `due_to`."""

    endpoint_id: int
    priority: int
    due_from: datetime
    due_to: datetime


class Whole:
    """When it is time to look at the whole."""

    def __init__(self, shortest: float, clock: Callable[[], float] = seconds) -> None:
        """`shortest` is in seconds."""
        self._shortest = shortest
        self._clock = clock
        self._due_at = -float("inf")
        self._began = 0.0

    def begin(self) -> bool:
        """Return whether to look at the whole now."""
        self._began = self._clock()
        return self._began >= self._due_at

    def done(self) -> None:
        """Take down that the whole was looked at."""
        now = self._clock()
        pause = max(self._shortest, WHOLE_SHARE * (now - self._began))
        self._due_at = now + min(pause, WHOLE_SECONDS_MAX)


class Marks:
    """Up to where the due lanes of each endpoint and priority have been claimed."""

    def __init__(self) -> None:
        self._marks: dict[int, dict[int, datetime]] = defaultdict(dict)
        self._claims: Counter[int] = Counter()

    def knows(self, endpoint_id: int) -> bool:
        """Return whether there is any priority to look at."""
        return bool(self._marks.get(endpoint_id))

    def know(self, endpoint_id: int, priority: int) -> None:
        """Look at this priority from now on."""
        self._marks[endpoint_id].setdefault(priority, BEGINNING)

    def looks(self, fresh_from: Mapping[int, datetime | None], *, whole: bool) -> list[Look]:
        """Return the looks of a claim, in their order, for each endpoint in `fresh_from`.

        With a moment there, what became due from it on is looked at first.
        """
        looks: list[Look] = []
        for endpoint_id, fresh in fresh_from.items():
            marks = self._marks[endpoint_id]
            order = sorted(marks)
            turn, rest = divmod(self._claims[endpoint_id] + 1, FAIR_EVERY)
            if rest == 0 and len(order) > 1:
                # Each of the less urgent in turn, or those between would wait for ever.
                order.insert(0, order.pop(-1 - turn % (len(order) - 1)))
            begin = {each: BEGINNING if whole else marks[each] for each in order}
            if fresh is not None:
                looks += [Look(endpoint_id, each, fresh, END) for each in order]
            end = END if fresh is None else fresh
            looks += [Look(endpoint_id, each, begin[each], end) for each in order]
        return looks

    def end_turn(self, endpoint_ids: Iterable[int]) -> None:
        """Take down that a claim is done; one that has to be made again has the same looks."""
        self._claims.update(dict.fromkeys(endpoint_ids, 1))

    def found(self, rows: Iterable[tuple[int, int, datetime]], *, whole: bool) -> None:
        """Take down what a claim found: endpoint, priority and when each lane became due."""
        last: dict[tuple[int, int], datetime] = {}
        for endpoint_id, priority, due_at in rows:
            known = last.get((endpoint_id, priority), due_at)
            last[endpoint_id, priority] = max(known, due_at)
        for (endpoint_id, priority), due_at in last.items():
            mark = due_at - SLACK
            if not whole:
                mark = max(mark, self._marks[endpoint_id].get(priority, mark))
            self._marks[endpoint_id][priority] = mark
