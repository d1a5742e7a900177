"""The rules of a check, what a violation of each means, and what a check found. Pure.

A rule belongs to one of the invariants I1 to I17, which the tests verify after every fault.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from holdfast.dispatcher.operators.receipts.rules import MEANING as RECEIPTS_MEAN
from holdfast.dispatcher.operators.receipts.rules import Finding
from holdfast.dispatcher.shared.value import value


class Rule(StrEnum):
    """The rules; the statements in `check/sql` name a rule by its value."""

    SEQUENCE_GAP = "sequence_gap"
    SEQUENCE_END = "sequence_end"
    ATTEMPT_UNROUTED = "attempt_unrouted"
    RECEIVER_LOST = "receiver_lost"
    RECEIVER_STALE = "receiver_stale"
    BATCH_ENTRIES = "batch_entries"
    BATCH_KEYS = "batch_keys"
    ENTRY_UNBATCHED = "entry_unbatched"
    SEQUENCE_REPEATED = "sequence_repeated"
    RECEIVER_OUTCOME = "receiver_outcome"
    KEY_UNRECORDED = "key_unrecorded"
    BODY_CHANGED = "body_changed"
    DEAD_KEY = "dead_key"
    RECEIVER_BODY = "receiver_body"
    PASSED_UNDELIVERED = "passed_undelivered"
    DELIVERED_UNPASSED = "delivered_unpassed"
    ANSWER_MISREAD = "answer_misread"
    DEAD_AND_DELIVERED = "dead_and_delivered"
    LANE_STATE = "lane_state"
    ATTEMPT_GAP = "attempt_gap"
    SENT_AFTER_DELIVERED = "sent_after_delivered"
    ENTRY_UNREACHED = "entry_unreached"
    LANE_STOPPED = "lane_stopped"
    CANCELLED_SENT = "cancelled_sent"
    CANCELLED_WAITS = "cancelled_waits"
    RECEIVER_ORDER = "receiver_order"
    BATCH_ROWS = "batch_rows"
    BATCH_QUARANTINED = "batch_quarantined"
    BATCH_SUPPRESSED = "batch_suppressed"
    UNAUDITED = "unaudited"
    TIME_BACKWARDS = "time_backwards"
    TIME_FUTURE = "time_future"


_BY_HAND = "One of the tables was changed by hand, or comes from another backup than the rest."
_RESTORE = f"{_BY_HAND} Restore it, or write what is missing again from the source."
_DEFECT = f"{_BY_HAND} If neither is so, it is a defect of Holdfast: keep the rows and report it."

MEANING: dict[Rule, str] = {
    Rule.SEQUENCE_GAP: (
        "An entry of a subject is missing between two others, so a decision is lost."
        f" {_RESTORE} A lane that takes every type waits at the gap, until `holdfast subject pass`"
        " skips it."
    ),
    Rule.SEQUENCE_END: (
        "The last sequence of a subject is not that of its last entry: the last decisions are lost,"
        f" or the next ones would repeat a sequence. {_RESTORE}"
    ),
    Rule.ATTEMPT_UNROUTED: (
        f"Something was sent that was never routed to this endpoint. {_DEFECT}"
    ),
    Rule.RECEIVER_LOST: RECEIPTS_MEAN[Finding.MISSING_THERE],
    Rule.RECEIVER_STALE: RECEIPTS_MEAN[Finding.STALE_THERE],
    Rule.BATCH_ENTRIES: (
        f"A batch is not complete: the ledger's count of entries differs. {_RESTORE}"
    ),
    Rule.BATCH_KEYS: (
        "The ledger's count of a batch's keys differs; a key that is not recorded does not prevent"
        f" a repeat of its decision. {_RESTORE}"
    ),
    Rule.ENTRY_UNBATCHED: f"An entry belongs to no batch of the ledger. {_RESTORE}",
    Rule.SEQUENCE_REPEATED: (
        "Two entries of a subject have the same sequence; a receiver refuses one of them as stale."
        f" {_DEFECT}"
    ),
    Rule.RECEIVER_OUTCOME: (
        "The receiver's table contradicts its signed receipt: it was changed since, or the key was"
        " processed twice, as after a restored backup. Check whether the action happened twice."
    ),
    Rule.KEY_UNRECORDED: (
        "An entry's key is not recorded for its batch, so it does not prevent a repeat of the"
        f" decision. {_RESTORE}"
    ),
    Rule.BODY_CHANGED: (
        "An entry's body is not the one recorded with its key when it was written. Pause the"
        f" endpoint before it is sent. {_BY_HAND}"
    ),
    Rule.DEAD_KEY: (
        f"A dead letter has another key than its entry. {_DEFECT} Do not redeliver it."
    ),
    Rule.RECEIVER_BODY: RECEIPTS_MEAN[Finding.OTHER_BODY],
    Rule.PASSED_UNDELIVERED: (
        "A lane has passed an entry that was not delivered and is no dead letter: the decision did"
        f" not reach the endpoint. {_DEFECT} See `holdfast receipts`: the receiver may know it."
    ),
    Rule.DELIVERED_UNPASSED: (
        "An entry was delivered, and its lane has not passed it: it will be sent again, and the"
        f" receiver's inbox absorbs it. {_DEFECT}"
    ),
    Rule.ANSWER_MISREAD: (
        f"An attempt counts as delivered without a 2xx answer, or not despite one. {_DEFECT}"
    ),
    Rule.DEAD_AND_DELIVERED: (
        "The entry of an open dead letter was delivered: nothing is left to do. Dismiss it."
        f" {_DEFECT}"
    ),
    Rule.LANE_STATE: (
        "The columns of a lane contradict each other, or it exists twice, or could come to exist"
        f" twice. {_DEFECT} Pause the endpoint until then."
    ),
    Rule.ATTEMPT_GAP: (
        f"The numbers of an entry's attempts have a gap: some are not on record. {_DEFECT}"
    ),
    Rule.SENT_AFTER_DELIVERED: (
        f"An entry was sent again after it was delivered, and no replay asked for that. {_DEFECT}"
    ),
    Rule.ENTRY_UNREACHED: (
        "An entry is routed, its endpoint takes it, and no lane reaches it. `holdfast endpoint"
        " backfill NAME` creates the missing lanes; it is idempotent."
    ),
    Rule.LANE_STOPPED: (
        f"A lane is stopped without an open dead letter, so nothing releases it. {_DEFECT}"
    ),
    Rule.CANCELLED_SENT: (
        "An entry that a person cancelled was sent: its receiver may have acted on it. Have the"
        f" opposite decided if that was wrong. {_DEFECT}"
    ),
    Rule.CANCELLED_WAITS: (
        "An entry that a person cancelled will be sent. Hold its subject at the endpoint until"
        f" that is corrected. {_DEFECT}"
    ),
    Rule.RECEIVER_ORDER: (
        "The receiver applied a decision after a later one of the same subject. Its fence by"
        " sequence is broken, or its table was changed by hand: check the subject's state there."
    ),
    Rule.BATCH_ROWS: f"The counts of a batch do not add up to its input rows. {_BY_HAND}",
    Rule.BATCH_QUARANTINED: (
        "The ledger's count of a batch's quarantined rows differs: refused rows are lost."
        f" {_RESTORE}"
    ),
    Rule.BATCH_SUPPRESSED: (
        "The ledger's count of a batch's suppressed decisions differs: some can no longer be shown."
        f" {_RESTORE}"
    ),
    Rule.UNAUDITED: (
        "A change that only people make has no audit row: it was made by hand in the database. Find"
        " out who has the right to do that."
    ),
    Rule.TIME_BACKWARDS: (
        "Times run backwards: the database's clock was set back, or a row was changed by hand."
        " Nothing is lost by that alone; check the server's clock."
    ),
    Rule.TIME_FUTURE: (
        "A time is in the future: the database's clock was set back, or a row was changed by hand."
        " Entries due or leased by the old clock wait until the new clock reaches that time."
    ),
}
"""The meaning of a violation of each rule, and what to do."""

_RULES_OF = {
    "I1": (
        Rule.SEQUENCE_GAP,
        Rule.SEQUENCE_END,
        Rule.ATTEMPT_UNROUTED,
        Rule.RECEIVER_LOST,
        Rule.RECEIVER_STALE,
    ),
    "I2": (
        Rule.BATCH_ENTRIES,
        Rule.BATCH_KEYS,
        Rule.ENTRY_UNBATCHED,
        Rule.SEQUENCE_REPEATED,
    ),
    "I3": (Rule.RECEIVER_OUTCOME,),
    "I4": (
        Rule.KEY_UNRECORDED,
        Rule.BODY_CHANGED,
        Rule.DEAD_KEY,
        Rule.RECEIVER_BODY,
    ),
    "I5": (
        Rule.PASSED_UNDELIVERED,
        Rule.DELIVERED_UNPASSED,
        Rule.ANSWER_MISREAD,
        Rule.DEAD_AND_DELIVERED,
    ),
    "I6": (Rule.LANE_STATE,),
    "I7": (Rule.ATTEMPT_GAP,),
    "I8": (Rule.SENT_AFTER_DELIVERED,),
    "I9": (
        Rule.ENTRY_UNREACHED,
        Rule.LANE_STOPPED,
    ),
    "I11": (Rule.RECEIVER_ORDER,),
    "I12": (
        Rule.BATCH_ROWS,
        Rule.BATCH_QUARANTINED,
        Rule.BATCH_SUPPRESSED,
    ),
    "I15": (Rule.UNAUDITED,),
    "I17": (Rule.CANCELLED_SENT, Rule.CANCELLED_WAITS),
    "I16": (
        Rule.TIME_BACKWARDS,
        Rule.TIME_FUTURE,
    ),
}

INVARIANT = {rule: name for name, rules in _RULES_OF.items() for rule in rules}
"""The invariant of each rule."""

OF_RECEIPTS = {
    Finding.MISSING_THERE: Rule.RECEIVER_LOST,
    Finding.OTHER_BODY: Rule.RECEIVER_BODY,
    Finding.OTHER_OUTCOME: Rule.RECEIVER_OUTCOME,
    Finding.OTHER_TIME: Rule.RECEIVER_OUTCOME,
    Finding.STALE_THERE: Rule.RECEIVER_STALE,
}
"""The rule that each difference from the receiver violates; other findings violate none."""


@value
class Violation:
    """One row that violates a rule; a member is None where it does not apply."""

    rule: Rule
    detail: str
    endpoint: str | None = None
    subject: str | None = None
    sequence: int | None = None
    key: str | None = None
    stream: str | None = None
    batch_id: int | None = None


@dataclass(slots=True)
class Checked:
    """What was checked, and every violated rule with its first rows."""

    limit: int
    """Maximum number of kept rows of each rule."""

    counted: Counter[str] = field(default_factory=Counter)
    """Counts of checked rows and of noteworthy ones, by name: `entries`, `unknown_outcomes`."""

    oldest: dict[str, datetime] = field(default_factory=dict)
    """The earliest moment of some of the counted rows, by the same names."""

    violated: Counter[Rule] = field(default_factory=Counter)
    kept: dict[Rule, list[Violation]] = field(default_factory=dict)

    def count(self, name: str, count: int, moment: datetime | None = None) -> None:
        """Count checked rows."""
        self.counted[name] += count
        if moment is not None:
            self.oldest[name] = min(moment, self.oldest.get(name, moment))

    def add_violations(self, rule: Rule, count: int, rows: Sequence[Violation]) -> None:
        """Count violations of a rule, of which `rows` are the first."""
        self.violated[rule] += count
        kept = self.kept.setdefault(rule, [])
        kept.extend(rows[: self.limit - len(kept)])

    def add(self, other: "Checked") -> None:
        """Add the result of another piece."""
        self.counted.update(other.counted)
        for name, moment in other.oldest.items():
            self.count(name, 0, moment)
        for rule, count in other.violated.items():
            self.add_violations(rule, count, other.kept.get(rule, []))

    @property
    def holds(self) -> bool:
        """Whether no rule is violated."""
        return not self.violated.total()

    @property
    def empty(self) -> bool:
        """Whether the range contains no batch, no entry and no attempt."""
        return not any(self.counted[name] for name in ("batches", "deliveries", "attempts"))


def unbroken_since(days: Sequence[date]) -> datetime:
    """Return the beginning of the last run of days without a gap.

    Days are UTC. Partitions are dropped one by one, so an old one may remain alone.

    >>> unbroken_since([date(2026, 11, 1), date(2026, 11, 3), date(2026, 11, 4)]).isoformat()
    '2026-11-03T00:00:00+00:00'
    """
    present, day = set(days), max(days)
    while day - timedelta(days=1) in present:
        day -= timedelta(days=1)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def next_width(width: int, seconds: float, target: float) -> int:
    """Return the size of the next piece, so that it takes about `target` seconds.

    `width` took `seconds`. The result is at most four times `width`, and at least 1.

    >>> next_width(1000, 0.1, 1.0), next_width(1000, 1.0, 1.0), next_width(1000, 8.0, 1.0)
    (4000, 1000, 125)
    """
    return max(1, int(width * min(4.0, target / max(seconds, 0.001))))
