"""Rows that were set aside: finding them, and recording what an operator did about them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from dispatcher.store.operator_session import OperatorSession, Row, actor, operator_connection
from dispatcher.store.statements import statement
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import QuarantineReason, QuarantineResolution

ROWS_AT_A_TIME = 200
"""That an export holds in memory; a row is at most 64 KiB."""

ACTIONS = {
    QuarantineResolution.REQUEUED: "quarantine.requeue",
    QuarantineResolution.DISMISSED: "quarantine.dismiss",
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows a command is about; None means any."""

    stream: str | None = None
    reason: QuarantineReason | None = None
    open: bool = True
    """Only rows that nobody has resolved."""


class Quarantine(OperatorSession):
    """The quarantine; use `quarantine(dsn)` to get it."""

    def newest(self, wanted: Filter, *, limit: int, before: int | None = None) -> list[Row]:
        """Return rows without their texts, the newest first, all with numbers below `before`."""
        return self._all("quarantine_list", {**asdict(wanted), "limit": limit, "before": before})

    @contextmanager
    def export(self, wanted: Filter) -> Iterator[tuple[int, Iterator[Row]]]:
        """Yield how many rows there are, and these with their texts, the oldest first."""
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            parameters = asdict(wanted)
            count = self._one("quarantine_count", parameters)["count"]
            with self._connection.cursor("holdfast_export") as cursor:
                cursor.itersize = ROWS_AT_A_TIME
                cursor.execute(statement("quarantine_export"), parameters)
                yield count, iter(cursor)

    def take(self, ids: Sequence[int]) -> list[Row]:
        """Return the named rows with their texts.

        Raises `CommandError` (nothing matched) unless all of them are there.
        """
        rows = self._all("quarantine_take", {"ids": list(ids)})
        missing = sorted(set(ids) - {row["id"] for row in rows})
        if missing:
            raise CommandError(
                f"the quarantine has no row {', '.join(map(str, missing))}. Nothing was changed;"
                " see `holdfast quarantine list --all`.",
                ExitCode.NOTHING_MATCHED,
            )
        return rows

    def resolve(
        self,
        ids: Sequence[int],
        resolution: QuarantineResolution,
        reason: str,
        detail: Row | None = None,
    ) -> list[int]:
        """Mark the open ones among the named rows, each with its audit row; returns their ids."""
        with self._transaction():
            marked = self._all(
                "quarantine_resolve",
                {"ids": list(ids), "resolution": resolution.value, "actor": actor()},
            )
            done = sorted(row["id"] for row in marked)
            for each in done:
                self._audit(ACTIONS[resolution], f"quarantine {each}", reason, detail or {})
        return done


@contextmanager
def quarantine(dsn: str | None) -> Iterator[Quarantine]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield Quarantine(connection)
