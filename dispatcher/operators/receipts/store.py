"""This side of a comparison: what was sent to an endpoint in a time range. Reads only."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.receipts.rules import IN_FLIGHT, Proof, SentEntry
from holdfast.dispatcher.outbound.endpoint import EndpointRow, endpoint_of
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import Outcome
from holdfast.sink.contract.wire import ReceiptOutcome

PAGE = 4000
"""Entries that are held in memory at once."""

SUBJECT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ComparedRange:
    """The range of a comparison: `since` is included, `until` is not."""

    endpoint_id: int
    since: datetime
    until: datetime
    subject: str | None = None
    subject_id: int | None = None
    """The id of `subject`, if given."""
    hashed: bool = False
    """Whether bodies are compared too."""


class SentEntries(OperatorSession):
    """Reads what was sent."""

    def _begin(self) -> None:
        # A generic plan does not know how few partitions a time range covers.
        self._connection.prepare_threshold = None
        self._run("receipts/settings")

    def endpoint(self, name: str) -> EndpointRow:
        """Return an endpoint in any state; raises `CommandError` for an unknown name."""
        row = self._maybe("endpoints/outbound", {"name": name})
        if row is None:
            raise CommandError(
                f"there is no endpoint {name!r}; nothing was compared. See"
                " `holdfast endpoint list`.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_endpoint",
            )
        return endpoint_of(row)

    def range_(
        self, endpoint_id: int, since: When, until: When, subject: str | None, *, hashed: bool
    ) -> ComparedRange:
        """Return the range of a comparison, by the database's clock.

        `until` is at most now. Raises `CommandError` for an unknown subject, and for a range that
        ends before it begins.
        """
        times_ = {"since": self.moment(since), "until": self.moment(until)}
        times = self._one("common/receipts_range", times_)
        if times["since"] >= times["until"]:
            raise CommandError(
                "--since is not before --until, or is in the future. Nothing was compared.",
                ExitCode.USAGE,
                code="invalid_time_range",
            )
        subject_id = None
        if subject is not None:
            subject_id = self._one("receipts/subjects", {"name": subject})["id"]
            if subject_id is None:
                raise CommandError(
                    f"no entry was ever written for the subject {subject!r}. Nothing was compared;"
                    " names are compared exactly.",
                    ExitCode.NOTHING_MATCHED,
                    code="unknown_subject",
                )
        return ComparedRange(
            endpoint_id, times["since"], times["until"], subject, subject_id, hashed=hashed
        )

    def last_subject_id(self) -> int:
        """Return the highest subject id, at which `pages` end."""
        return self._one("receipts/subjects", {"name": None})["id"] or 0

    def pages(self, range_: ComparedRange) -> Iterator[tuple[int, list[SentEntry]]]:
        """Yield the last subject id of a page and its entries: each that was tried in the range.

        Entries that were delivered at another time are left out. A page has at most `PAGE` entries.
        """
        first = range_.subject_id or 0
        place = {"after_subject": first, "after_sequence": 0}
        while True:
            rows = self._all("receipts/page", {**_bound(range_), **place, "limit": PAGE})
            if not rows:
                return
            last = rows[-1]
            place = {"after_subject": last["subject_id"], "after_sequence": last["sequence"]}
            yield last["subject_id"], [_entry_of(row) for row in rows if not row["elsewhere"]]
            if len(rows) < PAGE:
                return

    def in_flight(self, range_: ComparedRange) -> list[SentEntry]:
        """Return entries that are in flight and that `pages` did not yield."""
        return [
            SentEntry(
                key=Key(row["key"]).text,
                subject=row["subject"],
                sequence=row["sequence"],
                delivered=False,
                last=IN_FLIGHT,
                body_sha256=row["body_sha256"],
            )
            for row in self._all("receipts/in_flight", _bound(range_))
        ]

    def overtaken(
        self, range_: ComparedRange, stale: Sequence[tuple[str, int]]
    ) -> set[tuple[str, int]]:
        """Return those of `stale` (subject and sequence) that earlier requests explain.

        Either a later entry of the subject had been sent before the stale answer, or the entry
        itself is known to have been applied.
        """
        if not stale:
            return set()
        stale_rows = {
            "endpoint_id": range_.endpoint_id,
            "subjects": [subject for subject, _ in stale],
            "sequences": [sequence for _, sequence in stale],
        }
        return {
            (row["subject"], row["sequence"]) for row in self._all("receipts/overtaken", stale_rows)
        }

    def strangers(self, keys: Sequence[str]) -> set[str]:
        """Return those of `keys` that no entry of this outbox ever had."""
        return {row["key"] for row in self._all("receipts/strangers", {"keys": list(keys)})}


def _bound(range_: ComparedRange) -> Row:
    return {
        "endpoint_id": range_.endpoint_id,
        "since": range_.since,
        "until": range_.until,
        "hashed": range_.hashed,
        "first_subject": range_.subject_id or 0,
        "last_subject": SUBJECT_MAX if range_.subject_id is None else range_.subject_id,
    }


def _entry_of(row: Row) -> SentEntry:
    stored = json.loads(row["receipt"]) if row["receipt"] else None
    known = Key(row["key"]).text if row["key"] else None
    return SentEntry(
        key=known or (stored["key"] if stored else None),
        subject=row["subject"],
        sequence=row["sequence"],
        delivered=row["outcome"] == Outcome.DELIVERED.value,
        last=row["outcome"],
        proof=Proof(ReceiptOutcome(stored["outcome"]), stored["applied_at"]) if stored else None,
        body_sha256=row["body_sha256"],
    )
