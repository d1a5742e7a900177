"""Quarantined rows: reads, and the resolutions of operators."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated

import psycopg

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.overtaking import overtaken
from holdfast.dispatcher.operators.common.person import needs_approval
from holdfast.dispatcher.operators.common.session import Row, actor, cause, person
from holdfast.dispatcher.operators.proposals.store import Proposals
from holdfast.dispatcher.operators.quarantine.rules import placing
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineReason, QuarantineResolution

ACTIONS = {
    QuarantineResolution.REQUEUED: "quarantine.requeue",
    QuarantineResolution.DISMISSED: "quarantine.dismiss",
}

MANY = "quarantine"
"""The target, in proposals and in the audit trail, of what is done to rows by a filter."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of rows; None means any."""

    stream: verbs.OfStream = None
    reason: Annotated[
        str | None,
        verbs.Param(
            "Only this reason, or this rule of a job.",
            verbs.Kind.TEXT,
            "Only rows set aside for this reason, or rejected by this rule of a job.",
            label="Reason or rule",
            hint="bad_data",
        ),
    ] = None
    since: verbs.Since = None
    until: verbs.Until = None
    """When it was set aside: `since` included, `until` excluded."""

    open: verbs.Open = True
    resolved: verbs.Resolved = False

    def parameters(self) -> Row:
        """Return the parameters of the statements."""
        return {**asdict(self), "open": self.open and not self.resolved}


class Quarantine(Proposals):
    """Reads and resolves quarantined rows."""

    def newest(self, filter_: Filter, *, limit: int, before: int | None = None) -> list[Row]:
        """Return rows without texts, the newest first, all with ids below `before`.

        Raises `CommandError` (nothing matched) for an unknown stream.
        """
        if filter_.stream is not None:
            self._known_stream(filter_.stream)
        parameters = {**filter_.parameters(), "limit": limit, "before": before}
        return self._with_reasons(self._all("quarantine/list", parameters))

    @contextmanager
    def export(self, filter_: Filter) -> Iterator[tuple[int, Iterator[Row]]]:
        """Yield the count of rows, and these with texts, the oldest first.

        Raises `CommandError` (nothing matched) for an unknown stream.
        """
        if filter_.stream is not None:
            self._known_stream(filter_.stream)
        with self._export(
            "quarantine/count", "quarantine/export", filter_.parameters()
        ) as exported:
            yield exported

    def take(self, ids: Sequence[int]) -> list[Row]:
        """Return rows with texts; raises `CommandError` (nothing matched) for an unknown id."""
        rows = self._all("quarantine/take", {"ids": list(ids)})
        missing = sorted(set(ids) - {row["id"] for row in rows})
        if missing:
            raise CommandError(
                f"the quarantine has no row {', '.join(map(str, missing))}. Nothing was changed;"
                " see `holdfast quarantine list --all`.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_quarantine_row",
            )
        return self._with_reasons(rows)

    def _with_reasons(self, rows: list[Row]) -> list[Row]:
        """Add `resolution_reason`: the reason of the resolution, else None."""
        targets = [f"quarantine {row['id']}" for row in rows if row["resolution"] is not None]
        reasons = self._reasons(targets, list(ACTIONS.values()))
        return [
            {**row, "resolution_reason": reasons.get(f"quarantine {row['id']}")} for row in rows
        ]

    @contextmanager
    def locked(self, ids: Sequence[int]) -> Iterator[list[Row]]:
        """Lock rows while the block puts them back and resolves them.

        Yields them as `take` does. Raises `CommandError` for errors of the database: the
        resolutions of the block are then not recorded, unless the answer to COMMIT was lost.
        """
        try:
            with self._transaction():
                self._run("quarantine/lock", {"ids": list(ids)})
                yield self._with_reasons(self._all("quarantine/take", {"ids": list(ids)}))
        except psycopg.Error as error:
            raise CommandError(
                f"the database refused: {cause(error)}. The resolutions are recorded together or"
                " not at all. Repeat the command: it records what is written, and writes nothing"
                " twice.",
                code="database_error",
            ) from None

    def matching(
        self, filter_: Filter, reasons: Iterable[QuarantineReason], *, limit: int
    ) -> list[int]:
        """Return the ids of the oldest open rows of some reasons.

        Raises `CommandError` (nothing matched) for an unknown stream.
        """
        if filter_.stream is not None:
            self._known_stream(filter_.stream)
        parameters = {**asdict(filter_), "reasons": sorted(reasons), "limit": limit}
        return [row["id"] for row in self._all("quarantine/matching", parameters)]

    def begin_alone(self, action: str, reason: str, detail: Row, *, limit: int) -> bool:
        """Record that this person resolves `detail["rows"]` rows without a second person.

        Returns False, and records nothing, if that is more than `limit` within 24 hours.
        """
        with self._transaction():
            self._run("quarantine/alone_lock")
            used = self._one("quarantine/alone_used", {"target": MANY, "person": person()})["used"]
            if needs_approval(detail["rows"], used, limit):
                return False
            self._audit(action, MANY, reason, {**detail, "person": person()})
        return True

    def put_back(self, ids: Sequence[int]) -> dict[int, str]:
        """Return which of the rows have an entry in the outbox, by id, with the entry's stream.

        For locked rows this stays true.
        """
        return {
            row["id"]: row["stream"] for row in self._all("quarantine/put_back", {"ids": list(ids)})
        }

    def overtakes(self, row: Row, text: str, *, suppress_repeats: bool) -> Row | None:
        """Return the newer decision that a row with `text` would follow as an entry, if any.

        None for a row whose entry is written, and for one that the sink would refuse.
        """
        place = None if row.get("put_back") else placing(row, text)
        if place is None:
            return None
        newest = self._newest_decision(place.subject, row["stream"], place.type)
        if newest is not None and suppress_repeats and place.refused_as_repeat(newest):
            return None
        by_hand = place.dated_by_hand
        return overtaken(newest, place.occurred_at, place.type, dated_by_hand=by_hand)

    def last_sequence(self, row: Row, text: str) -> int | None:
        """Return the last sequence of the subject of a row with `text`, to read before `overtakes`.

        None for one that the sink would refuse.
        """
        place = placing(row, text)
        if place is None:
            return None
        return self._last_sequence(place.subject, row["stream"], place.type)

    def resolve(
        self,
        ids: Sequence[int],
        resolution: QuarantineResolution,
        reason: str,
        detail: Row | None = None,
    ) -> list[int]:
        """Resolve the open ones of the rows, each with its audit row; return their ids.

        Raises `CommandError` for the dismissal of a row whose entry was written.
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
        """Lock rows, and raise `CommandError` for an open one with an entry in the outbox."""
        locked = self._all("quarantine/lock", {"ids": list(ids)})
        written = self.put_back([row["id"] for row in locked if row["resolution"] is None])
        if written:
            each = "; ".join(
                f"row {number} was put back already, in stream {stream}, and only its resolution is"
                f" missing: `holdfast quarantine requeue {number} --reason TEXT` records it"
                for number, stream in written.items()
            )
            raise CommandError(f"{each}. Nothing was changed.", code="already_requeued")
