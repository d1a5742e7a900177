"""Rows that were set aside: finding them, and recording what an operator did about them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psycopg

from dispatcher.operators.common.session import Row, actor, cause
from dispatcher.operators.common.statements import statement
from dispatcher.operators.proposals.store import Proposals
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

    resolved: bool = False
    """Only rows that somebody has resolved."""


class Quarantine(Proposals):
    """The quarantine."""

    def newest(self, wanted: Filter, *, limit: int, before: int | None = None) -> list[Row]:
        """Return rows without their texts, the newest first, all with numbers below `before`.

        Raises `CommandError` (nothing matched) where no stream has the name that is wanted.
        """
        if wanted.stream is not None:
            self._known_stream(wanted.stream)
        parameters = {**asdict(wanted), "limit": limit, "before": before}
        return self._with_reasons(self._all("quarantine/list", parameters))

    @contextmanager
    def export(self, wanted: Filter) -> Iterator[tuple[int, Iterator[Row]]]:
        """Yield how many rows there are, and these with their texts, the oldest first.

        Raises `CommandError` (nothing matched) where no stream has the name that is wanted.
        """
        if wanted.stream is not None:
            self._known_stream(wanted.stream)
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            parameters = asdict(wanted)
            count = self._one("quarantine/count", parameters)["count"]
            with self._connection.cursor("holdfast_export") as cursor:
                cursor.itersize = ROWS_AT_A_TIME
                cursor.execute(statement("quarantine/export"), parameters)
                yield count, iter(cursor)

    def take(self, ids: Sequence[int]) -> list[Row]:
        """Return the named rows with their texts.

        Raises `CommandError` (nothing matched) unless all of them are there.
        """
        rows = self._all("quarantine/take", {"ids": list(ids)})
        missing = sorted(set(ids) - {row["id"] for row in rows})
        if missing:
            raise CommandError(
                f"the quarantine has no row {', '.join(map(str, missing))}. Nothing was changed;"
                " see `holdfast quarantine list --all`.",
                ExitCode.NOTHING_MATCHED,
            )
        return self._with_reasons(rows)

    def _with_reasons(self, rows: list[Row]) -> list[Row]:
        """Add `resolution_reason`: what was said when the row was resolved, else None."""
        targets = [f"quarantine {row['id']}" for row in rows if row["resolution"] is not None]
        reasons = self._reasons(targets, list(ACTIONS.values()))
        return [
            {**row, "resolution_reason": reasons.get(f"quarantine {row['id']}")} for row in rows
        ]

    @contextmanager
    def alone(self, ids: Sequence[int]) -> Iterator[list[Row]]:
        """Let nobody else resolve rows while the block puts them back and resolves them.

        Yields what they are now, as `take` does. Raises `CommandError` for what the database
        refuses: nothing of the block is booked then.
        """
        try:
            with self._transaction():
                self._run("quarantine/lock", {"ids": list(ids)})
                yield self._with_reasons(self._all("quarantine/take", {"ids": list(ids)}))
        except psycopg.Error as error:
            raise CommandError(
                f"the database refused: {cause(error)}. Nothing of it was booked: the same command"
                " books what is written, and writes nothing twice."
            ) from None

    def put_back(self, ids: Sequence[int]) -> dict[int, str]:
        """Return which of the named rows have an entry in the outbox, each with its stream there.

        It stays true for those that nobody else can resolve meanwhile.
        """
        return {
            row["id"]: row["stream"] for row in self._all("quarantine/put_back", {"ids": list(ids)})
        }

    def resolve(
        self,
        ids: Sequence[int],
        resolution: QuarantineResolution,
        reason: str,
        detail: Row | None = None,
    ) -> list[int]:
        """Mark the open ones among the named rows, each with its audit row; returns their ids.

        Raises `CommandError` where one is to be dismissed of which an entry was written.
        """
        with self._transaction():
            if resolution is QuarantineResolution.DISMISSED:
                self._only_unwritten(ids)
            marked = self._all(
                "quarantine/resolve",
                {"ids": list(ids), "resolution": resolution.value, "actor": actor()},
            )
            done = sorted(row["id"] for row in marked)
            for each in done:
                self._audit(ACTIONS[resolution], f"quarantine {each}", reason, detail or {})
        return done

    def _only_unwritten(self, ids: Sequence[int]) -> None:
        """Lock rows, and raise `CommandError` where an open one has an entry in the outbox."""
        locked = self._all("quarantine/lock", {"ids": list(ids)})
        written = self.put_back([row["id"] for row in locked if row["resolution"] is None])
        if written:
            each = "; ".join(
                f"row {number} was put back already, in stream {stream}, and only its booking is"
                f" missing: `holdfast quarantine requeue {number} --reason TEXT` books it"
                for number, stream in written.items()
            )
            raise CommandError(f"{each}. Nothing was changed.")
