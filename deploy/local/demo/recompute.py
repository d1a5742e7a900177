"""The expected result, computed from the events alone.

The parser is deliberately simple and shares nothing with the Spark job: an event that is invalid
here must be quarantined there, or the audit at the end fails.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.deploy.local.demo import generator
from holdfast.deploy.local.demo.reference import BatchResult, Decision, Event, Reference
from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.sink.contract.key import Key

WATERMARK_DELAY_US = 30 * 1_000_000
FUTURE_TOLERANCE_US = 5 * 60 * 1_000_000
INT64_MAX = 2**63 - 1
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True)
class Recomputed:
    """The recomputed stream, batch by batch; the last one is empty and advances time."""

    lines: int
    unusable: int
    batches: list[BatchResult]

    @property
    def decisions(self) -> list[Decision]:
        """Every decision, in the order of the batches."""
        return [decision for batch in self.batches for decision in batch.decisions]

    def late(self, reason: str) -> int:
        """Count the events that were recorded for `reason` and not applied."""
        return sum(late.reason == reason for batch in self.batches for late in batch.late)

    def batch_of(self, merchant_id: str, action: str) -> int:
        """Return the number, from 0, of the first batch that decided `action` on a merchant."""
        return next(
            number
            for number, batch in enumerate(self.batches)
            for decision in batch.decisions
            if (decision.merchant_id, decision.action) == (merchant_id, action)
        )


def recompute(
    directory: Path, policy_path: Path, now_us: int, *, pauses: Collection[int] = ()
) -> Recomputed:
    """Recompute the files of `directory`; `now_us` is the clock of all batches.

    After each number of files in `pauses` the job had read everything that was there, so it ran a
    batch without data.
    """
    batches: list[list[str]] = []
    for number, path in enumerate(generator.files_in_order(directory)):
        if number in pauses:
            batches.append([])
        batches.append(path.read_text(encoding="utf-8").splitlines())
    return recompute_batches([*batches, []], policy_path, now_us)


def recompute_batches(
    batches: Iterable[Sequence[str]], policy_path: Path, now_us: int
) -> Recomputed:
    """Recompute batches of lines; `now_us` is the clock of all of them."""
    reference = Reference(policy_path)
    results: list[BatchResult] = []
    watermark: int | None = None
    lines = unusable = 0
    for batch in batches:
        read = [parse(line, now_us) for line in batch]
        events = [
            row for row in read if row and row.currency == reference.currency(row.merchant_id)
        ]
        lines += len(read)
        unusable += len(read) - len(events)
        results.append(reference.batch(events, watermark))
        # Only a completed batch advances the watermark.
        for row in events:
            if not row.future_dated:
                reached = row.occurred_at_us - WATERMARK_DELAY_US
                watermark = reached if watermark is None else max(watermark, reached)
    return Recomputed(lines, unusable, results)


def parse(line: str, now_us: int) -> Event | None:
    """Return the event of a line, or None if it is invalid."""
    try:
        fields: dict[str, Any] = json.loads(line)
        occurred_at = datetime.fromisoformat(fields["occurred_at"])
        texts = [fields[name] for name in ("event_id", "merchant_id", "type", "currency")]
        amount = fields["amount_minor"]
    except (ValueError, TypeError, KeyError):
        return None
    if not all(isinstance(text, str) and text and "\x00" not in text for text in texts):
        return None
    if type(amount) is not int or abs(amount) > INT64_MAX:
        return None
    occurred_at_us = (occurred_at - _EPOCH) // timedelta(microseconds=1)
    event_id, merchant_id, type_, currency = texts
    future_dated = occurred_at_us > now_us + FUTURE_TOLERANCE_US
    return Event(event_id, merchant_id, type_, amount, currency, occurred_at_us, future_dated)


@dataclass(frozen=True, slots=True)
class Action:
    """A hold set or lifted on a merchant; amounts in minor units."""

    key: str
    merchant_id: str
    action: str
    window_end: str
    exposure_minor: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of actions that differ from the expected ones; all zero if the guarantee is met."""

    applied: int
    lost: int
    repeated: int
    out_of_order: int
    altered: int

    @property
    def kept(self) -> bool:
        """Whether the guarantee was met."""
        return not (self.lost or self.repeated or self.out_of_order or self.altered)


def expected(decisions: Iterable[Decision]) -> list[Action]:
    """Return the action of each decision; the key is derived from the decision alone."""
    return [
        Action(
            _key(decision).text,
            decision.merchant_id,
            decision.action,
            rfc3339_from_micros(decision.window_end),
            decision.exposure_minor,
        )
        for decision in decisions
    ]


def _key(decision: Decision) -> Key:
    return Key.of(
        [
            "payout-hold/v1",
            decision.merchant_id,
            rfc3339_from_micros(decision.window_end),
            decision.action,
            str(decision.ordinal),
        ]
    )


def audit(should: Sequence[Action], applied: Sequence[Action]) -> Verdict:
    """Compare the expected actions with the applied ones, both in order.

    Neither list comes from the outbox: one is recomputed from the event files, the other is read
    from the payouts service's own tables.

    lost          expected, but never applied
    repeated      applied more often than expected, which may be zero times
    out_of_order  applied after a later action of the same merchant
    altered       applied with the right key to another merchant, window or amount
    """
    position = {action.key: number for number, action in enumerate(should)}
    meant = {action.key: action for action in should}
    times = Counter(action.key for action in applied)
    furthest: dict[str, int] = {}
    out_of_order = 0
    for action in applied:
        number = position.get(action.key)
        if number is None:
            continue
        if number < furthest.get(action.merchant_id, -1):
            out_of_order += 1
        furthest[action.merchant_id] = max(number, furthest.get(action.merchant_id, -1))
    return Verdict(
        applied=len(applied),
        lost=sum(times[key] == 0 for key in position),
        repeated=sum(count - (key in position) for key, count in times.items()),
        out_of_order=out_of_order,
        altered=sum(a.key in meant and a != meant[a.key] for a in applied),
    )
