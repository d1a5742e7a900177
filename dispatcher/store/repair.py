"""What it takes to put a subject right that a decision of the future has silenced; reads only."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from dispatcher.store.operator_session import OperatorSession, Row, operator_connection
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key

TOLERANCE = timedelta(days=1)
"""How far ahead of the clock a state may be without being one to repair."""

OVERTAKEN_SHOWN = 1_000


class Repairs(OperatorSession):
    """Looks at subjects to repair; use `repairs(dsn)` to get it."""

    def look(self, subject: str, tolerance: timedelta = TOLERANCE) -> Row:
        """Return `subject`, `subject_id` and its `states`, one for each stream.

        A state has `stream`, `last_type`, `last_occurred_at`, `updated_at`, whether it is `ahead`
        of the clock by more than `tolerance`, and what it would be by the entries that are stored:

        - `stored_type`: of the newest entry, whatever its date, because receivers have applied it;
        - `stored_occurred_at`: the latest that is not beyond the clock and the tolerance.

        Both are None where nothing such is stored. A state that is ahead has also `overtaken` (the
        first 1,000 decisions that were suppressed since: `key`, `type`, `occurred_at`,
        `suppressed_at`, `stream`, `batch_id`) and `overtaken_count`; of others these are empty.
        Raises `CommandError` (nothing matched) where no subject has this name.
        """
        with self._transaction():
            self._run("repair_snapshot")
            found = self._maybe("entry_subject", {"subject": subject})
            if found is None:
                raise CommandError(
                    f"no subject is called {subject!r}. Nothing was changed; names are compared"
                    " exactly (`holdfast subjects list --silenced`).",
                    ExitCode.NOTHING_MATCHED,
                )
            given = {"subject_id": found["id"], "tolerance": tolerance}
            states = [self._with_overtaken(row, given) for row in self._all("repair_states", given)]
        return {"subject": subject, "subject_id": found["id"], "states": states}

    def _with_overtaken(self, state: Row, given: Row) -> Row:
        rows = []
        if state["ahead"]:
            rows = self._all("repair_overtaken", {**given, **state, "limit": OVERTAKEN_SHOWN})
        return {
            **{name: value for name, value in state.items() if name != "ahead_since"},
            "overtaken_count": rows[0]["count"] if rows else 0,
            "overtaken": [
                {name: row[name] for name in row if name != "count"} | {"key": Key(row["key"]).text}
                for row in rows
            ],
        }


@contextmanager
def repairs(dsn: str | None) -> Iterator[Repairs]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield Repairs(connection)
