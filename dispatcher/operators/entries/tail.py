"""Entries as they are written: the newest, and then those that come."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import IsolationLevel

from dispatcher.operators.common.session import Row, operator_connection
from dispatcher.operators.entries.new_batches import PASSED_OVER_MAX, Followed
from dispatcher.operators.entries.store import Entries, Wanted
from sink.contract.key import Key

BATCHES_AT_ONCE = 100
ENTRIES_AT_ONCE = 1_000


class Tail(Entries):
    """Follows the outbox; use `tail(dsn)` to get it."""

    def begin(self, wanted: Wanted, lines: int) -> list[Row]:
        """Return the newest `lines` entries, the oldest of them first; `more` goes on from there.

        Raises `CommandError` (nothing matched) where there is no such stream or subject.
        """
        self._wanted = wanted
        self._connection.isolation_level = IsolationLevel.REPEATABLE_READ
        with self._transaction():
            rows = self.newest(wanted, limit=lines)[0] if lines else []
            newest = self._one("entries/tail_newest")["batch_no"]
            self._followed = Followed(max(0, newest - PASSED_OVER_MAX))
            # What is in the middle of being written now has one of the last numbers.
            seen = self._batches(PASSED_OVER_MAX)
            self._followed.see([each["batch_no"] for each in seen], time.monotonic())
        return rows[::-1]

    def more(self) -> Iterator[list[Row]]:
        """Yield what was written since, batch by batch; ends where nothing is left."""
        while found := self._batches(BATCHES_AT_ONCE):
            for batch in found:
                if self._wanted.stream in (None, batch["stream"]) and batch["entry_count"]:
                    yield from self._of(batch)
            self._followed.see([each["batch_no"] for each in found], time.monotonic())

    def _batches(self, limit: int) -> list[Row]:
        followed = self._followed
        return self._all(
            "entries/tail_batches",
            {"after": followed.after, "missing": followed.missing, "limit": limit},
        )

    def _of(self, batch: Row) -> Iterator[list[Row]]:
        place = {"after_subject_id": 0, "after_sequence": 0}
        names = {name: batch[name] for name in ("stream", "query_id", "batch_id", "batch_no")}
        chosen = {"subject": self._wanted.subject, "type": self._wanted.type}
        while True:
            rows = self._all("entries/tail", {**batch, **chosen, **place, "limit": ENTRIES_AT_ONCE})
            if rows:
                yield [{**row, **names, "key": Key(row["key"]).text} for row in rows]
            if len(rows) < ENTRIES_AT_ONCE:
                return
            place = {f"after_{name}": rows[-1][name] for name in ("subject_id", "sequence")}


@contextmanager
def tail(dsn: str | None) -> Iterator[Tail]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield Tail(connection)
