"""Reads that check the invariants of a time range, piece by piece. Nothing is written.

Each piece reads one snapshot (REPEATABLE READ), so that concurrent deliveries never look like
violations, and no snapshot lasts longer than a piece.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

import psycopg

from holdfast.dispatcher.operators.cancellations.store import Cancellations
from holdfast.dispatcher.operators.check.rules import Checked, Rule, Violation, unbroken_since
from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.times import When
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key


class TooMuchAtOnceError(Exception):
    """The database cancelled a statement that took too long: use a smaller piece."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a check. Times are UTC; `since` is included, `until` is not.

    Dropped partitions are left out: `entries_since` and so on are where the days without a gap
    begin.
    """

    since: datetime
    until: datetime
    entries_since: datetime
    attempts_since: datetime
    delivery_since: datetime
    suppressed_since: datetime
    attempts_kept: datetime
    """Where the stored attempts begin, independent of the range."""

    dropped: bool
    """Whether a partition of entries was ever dropped."""

    endpoints: tuple[Row, ...]
    """`id`, `name`, `types`, `judged_from` of each checked endpoint."""

    endpoint: str | None
    stream: str | None
    batches: int
    first_batch_no: int
    last_batch_no: int
    last_subject: int

    @property
    def bound(self) -> Row:
        """The parameters that all statements share."""
        return {
            "since": self.since,
            "until": self.until,
            "entries_since": self.entries_since,
            "attempts_since": self.attempts_since,
            "delivery_since": self.delivery_since,
            "suppressed_since": self.suppressed_since,
            "attempts_kept": self.attempts_kept,
            "dropped": self.dropped,
            "stream": self.stream,
        }


class Checks(OperatorSession):
    """The statements of a check, with one process each."""

    def _begin(self) -> None:
        self._run("check/settings")

    def range(self, since: When, until: When, endpoint: str | None, stream: str | None) -> Range:
        """Return the range of a check, by the database's clock.

        `until` is at most now. Raises `CommandError` for an unknown endpoint or stream, and for a
        range that ends before it begins.
        """
        self._run("check/settings")
        parameters = {"since": self.moment(since), "until": self.moment(until)}
        times = self._one("common/receipts_range", parameters)
        if times["since"] >= times["until"]:
            raise CommandError(
                "--since is not before --until, or is in the future. Nothing was checked.",
                ExitCode.USAGE,
                code="invalid_time_range",
            )
        if stream is not None:
            self._known_stream(stream)
        endpoints = self._all("check/endpoints", {"endpoint": endpoint})
        if endpoint is not None and not endpoints:
            raise CommandError(
                f"there is no endpoint {endpoint!r}; nothing was checked. See"
                " `holdfast endpoint list`.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_endpoint",
            )
        days = self._one("check/days")
        entries = max(times["since"], unbroken_since(days["entry_days"]))
        kept = unbroken_since(days["attempt_days"])
        size = self._one(
            "check/size", {"since": entries, "until": times["until"], "stream": stream}
        )
        return Range(
            **times,
            entries_since=entries,
            attempts_since=max(times["since"], kept),
            delivery_since=max(entries, kept),
            suppressed_since=unbroken_since(days["suppressed_days"]),
            attempts_kept=kept,
            dropped=days["dropped"],
            endpoints=tuple(endpoints),
            endpoint=endpoint,
            stream=stream,
            batches=size["batches"],
            first_batch_no=size["first_batch_no"],
            last_batch_no=size["last_batch_no"],
            last_subject=size["last_subject"],
        )

    def batches(self, range_: Range, after: int, entries: int, checked: Checked) -> tuple[int, int]:
        """Check the batches after a number, with about `entries` entries together.

        Returns the last one's number and their count: 0 when none is left. Raises
        `TooMuchAtOnceError`.
        """
        seen = Checked(checked.limit)
        with self._snapshot():
            place = {"after_batch_no": after, "until_batch_no": range_.last_batch_no}
            bound = {**range_.bound, "since": range_.entries_since, "limit": checked.limit}
            run = self._one("check/batch_run", {**bound, **place, "entries": entries})
            if not run["batches"]:
                return range_.last_batch_no, 0
            for name in ("check/batches", "check/entries"):
                _take(self._all(name, {**bound, **place, **run}), seen)
        checked.add(seen)
        return run["last_batch_no"], run["batches"]

    def subjects(self, range_: Range, first: int, last: int, checked: Checked) -> None:
        """Check the sequences, lanes, attempts and dead letters of subjects by id, `last` included.

        Raises `TooMuchAtOnceError`.
        """
        seen = Checked(checked.limit)
        with self._snapshot():
            bound = {**range_.bound, "limit": checked.limit}
            bound |= {"first_subject": first, "last_subject": last}
            if range_.endpoint is None and range_.stream is None:
                _take(self._all("check/sequences", bound), seen)
            knows = self.beside(Cancellations).known()
            recorded = self._all("cancellations/in_range", bound) if knows else []
            for each in range_.endpoints:
                parameters = {**bound, "endpoint_id": each["id"], "types": each["types"]}
                parameters |= _cancelled(recorded, each["id"])
                if each["judged_from"] is not None:
                    parameters["delivery_since"] = max(
                        parameters["delivery_since"], each["judged_from"]
                    )
                names = ["check/delivery"]
                if range_.stream is None:
                    names += ["check/lanes", "check/attempts", "check/dead"]
                    names += ["cancellations/violations"] if recorded else []
                for name in names:
                    _take(self._all(name, parameters), seen, endpoint=each["name"])
        checked.add(seen)

    def rest(self, range_: Range, checked: Checked) -> None:
        """Check the audit trail, and count unrouted batches.

        Raises `CommandError` when that takes too long: it cannot be done in pieces.
        """
        try:
            self._rest(range_, checked)
        except TooMuchAtOnceError:
            raise CommandError(
                "this time has too many changes to compare them with the audit trail at once."
                " Nothing was changed, and all else was checked; take a shorter time.",
                code="too_many_changes",
            ) from None

    def _rest(self, range_: Range, checked: Checked) -> None:
        with self._snapshot():
            waiting = self._one("check/unrouted")
            checked.count("batches_unrouted", waiting["count"], waiting["moment"])
            if range_.endpoint is None and range_.stream is None:
                bound = {**range_.bound, "limit": checked.limit}
                _take(self._all("check/audit", bound), checked)
                if self.beside(Cancellations).known():
                    _take(self._all("cancellations/unaudited", bound), checked)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        try:
            with self._transaction():
                self._connection.execute(
                    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
                )
                yield
        except psycopg.errors.QueryCanceled as error:
            raise TooMuchAtOnceError from error


def _cancelled(recorded: Sequence[Row], endpoint_id: int) -> Row:
    """Return the entries that are cancelled at an endpoint, as parameters."""
    there = [row for row in recorded if row["endpoint_id"] in (None, endpoint_id)]
    return {
        "cancelled_subjects": [row["subject_id"] for row in there],
        "cancelled_sequences": [row["sequence"] for row in there],
    }


def _take(rows: Sequence[Row], checked: Checked, **known: Any) -> None:
    """Split the rows of a statement into counts (rows without a rule) and violations."""
    for row in rows:
        if row["rule"] is None:
            checked.count(row["detail"], row["count"], row.get("moment"))
    named = sorted((row for row in rows if row["rule"]), key=lambda row: str(row["rule"]))
    for rule, group in groupby(named, key=lambda row: Rule(row["rule"])):
        violations = sorted(group, key=_order)
        checked.add_violations(
            rule, violations[0]["count"], [_violation(rule, row, known) for row in violations]
        )


def _order(row: Row) -> tuple[Any, ...]:
    names = ("batch_id", "subject", "sequence", "detail")
    return tuple((row.get(name) is None, row.get(name)) for name in names)


def _violation(rule: Rule, row: Row, known: Row) -> Violation:
    key: UUID | None = row.get("key")
    return Violation(
        rule,
        row["detail"],
        endpoint=known.get("endpoint"),
        subject=row.get("subject"),
        sequence=row.get("sequence"),
        key=Key(key).text if key else None,
        stream=row.get("stream"),
        batch_id=row.get("batch_id"),
    )
