"""Checks a database in pieces of about equal duration, on several connections."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Lock

from holdfast.dispatcher.operators.check.rules import (
    OF_RECEIPTS,
    Checked,
    Rule,
    Violation,
    next_width,
)
from holdfast.dispatcher.operators.check.store import Checks, Range, TooMuchAtOnceError
from holdfast.dispatcher.operators.receipts.actions import Receiver, compare_sent
from holdfast.dispatcher.operators.receipts.inbox import InboxTables
from holdfast.dispatcher.operators.receipts.rules import Difference, Finding, Tally
from holdfast.dispatcher.operators.receipts.store import ComparedRange, SentEntries
from holdfast.sink.contract.exits import CommandError

ENTRIES_AT_FIRST = 20_000
SUBJECTS_AT_FIRST = 1_000

ENTRIES_AT_ONCE_MAX = 500_000
"""Maximum size of a piece: its hashes stay in memory."""

COUNTED = (Finding.AGREED, Finding.UNDELIVERED_HERE, Finding.NO_RECEIPT, Finding.OVERTAKEN)
"""Findings that violate no rule and are counted."""

PIECE_SECONDS = 3.0
"""Target duration of a piece, and so of its snapshot."""

Watch = Callable[[str, int, int], None]
"""Called after each piece: what is checked, how much is done, and the total."""


def check(stores: Sequence[Checks], range_: Range, checked: Checked, watch: Watch) -> None:
    """Check everything in a range, with one thread for each of `stores`.

    Raises `CommandError` when the database is too slow.
    """
    pieces = Pieces(range_.last_subject)
    of_batches = Checked(checked.limit)

    def walk(place: int) -> None:
        if place == 0 and range_.endpoint is None and range_.batches:
            _batches(stores[place], range_, of_batches, watch)
        _subjects(stores[place], range_, pieces, checked.limit, watch)

    with ThreadPoolExecutor(len(stores), "check") as workers:
        try:
            for each in [workers.submit(walk, place) for place in range(len(stores))]:
                each.result()
        except BaseException:
            pieces.stop()
            raise
    for part in (of_batches, *pieces.results()):
        checked.add(part)
    stores[0].rest(range_, checked)


def compare_receipts(
    sent: SentEntries, receiver: Receiver, compared: ComparedRange, endpoint: str, checked: Checked
) -> None:
    """Compare what was sent to an endpoint with what its receiver knows of it.

    Differences that resolve by themselves are counted as `receiver_<finding>`, not as violations.
    """
    tally = Tally(checked.limit)
    compare_sent(sent, receiver, compared, tally, lambda _tally, _place: None)
    for finding, rule in OF_RECEIPTS.items():
        rows = [_difference(rule, endpoint, each) for each in tally.kept.get(finding, [])]
        checked.add_violations(rule, tally.findings[finding], rows)
    for finding in COUNTED:
        checked.count(f"receiver_{finding.value}", tally.findings[finding])


def judge_order(
    inbox: InboxTables, compared: ComparedRange, endpoint: str, checked: Checked
) -> None:
    """Find entries that the receiver applied after a later one of the same subject."""
    disordered = inbox.disordered(compared)
    rows = [
        Violation(
            Rule.RECEIVER_ORDER,
            f"applied at {record.applied_at}, after sequence {highest}",
            endpoint=endpoint,
            subject=record.subject,
            sequence=record.sequence,
            key=record.key,
        )
        for record, highest in islice(disordered, checked.limit)
    ]
    checked.add_violations(Rule.RECEIVER_ORDER, len(rows) + sum(1 for _ in disordered), rows)


def _batches(store: Checks, range_: Range, checked: Checked, watch: Watch) -> None:
    after, done, width = range_.first_batch_no - 1, 0, ENTRIES_AT_FIRST
    while after < range_.last_batch_no:
        began = time.monotonic()
        try:
            after, count = store.batches(range_, after, width, checked)
        except TooMuchAtOnceError:
            width = _smaller(width)
            continue
        done += count
        width = min(_width(width, began), ENTRIES_AT_ONCE_MAX)
        watch("batches", done, range_.batches)


def _subjects(store: Checks, range_: Range, pieces: "Pieces", limit: int, watch: Watch) -> None:
    while piece := pieces.take():
        seen, began = Checked(limit), time.monotonic()
        try:
            store.subjects(range_, *piece, seen)
        except TooMuchAtOnceError:
            pieces.give_back(piece)
            continue
        watch("subjects", pieces.done(piece, seen, began), range_.last_subject)


class Pieces:
    """Ranges of subject ids, from the first to the last, handed out to several threads."""

    def __init__(self, last: int) -> None:
        self._lock = Lock()
        self._open = [(1, last)] if last else []
        self._width = SUBJECTS_AT_FIRST
        self._count = 0
        self._results: dict[int, Checked] = {}

    def take(self) -> tuple[int, int] | None:
        """Return the first and last id of the next range; None when all are taken."""
        with self._lock:
            if not self._open:
                return None
            first, last = self._open.pop()
            end = min(last, first + self._width - 1)
            if end < last:
                self._open.append((end + 1, last))
            return first, end

    def give_back(self, piece: tuple[int, int]) -> None:
        """Take back a range that was too large; raises `CommandError` for the smallest."""
        with self._lock:
            self._width = min(self._width, _smaller(piece[1] - piece[0] + 1))
            self._open.append(piece)

    def stop(self) -> None:
        """Hand out no further ranges."""
        with self._lock:
            self._open.clear()

    def done(self, piece: tuple[int, int], seen: Checked, began: float) -> int:
        """Keep the result of a range; return how many subjects are done."""
        with self._lock:
            width = piece[1] - piece[0] + 1
            self._width = _width(width, began)
            self._count += width
            self._results[piece[0]] = seen
            return self._count

    def results(self) -> list[Checked]:
        """Return the results in the order of subjects."""
        return [self._results[first] for first in sorted(self._results)]


def _width(width: int, began: float) -> int:
    return next_width(width, time.monotonic() - began, PIECE_SECONDS)


def _smaller(width: int) -> int:
    if width == 1:
        raise CommandError(
            "the database took too long for the smallest piece. The check is not complete; nothing"
            " was changed. Try a shorter time (--since, --until), or a time with less load;"
            " `holdfast db doctor` shows what slows it down.",
            code="database_timeout",
        )
    return max(1, width // 8)


def _difference(rule: Rule, endpoint: str, difference: Difference) -> Violation:
    side = difference.entry or difference.record
    outcome = difference.record.outcome.value if difference.record else "nothing"
    return Violation(
        rule,
        f"{difference.entry.last if difference.entry else 'nothing'} here, {outcome} there",
        endpoint=endpoint,
        subject=side.subject if side else None,
        sequence=side.sequence if side else None,
        key=difference.key,
    )
