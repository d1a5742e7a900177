"""A random stream for the exposure job, the same for the same seed, and what it must lead to.

Untidy on purpose: amounts around the limits, so that holds come and go; merchants that fall silent
under a hold; repeats, laggards of all sizes, dates in the far future and lines that are no events.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.deploy.local.demo.reference import BatchResult, Event, Reference
from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure.settings import Settings
from tests.support.job.jobs import POLICY, at, event, micros, put

MINUTE = 60_000_000
FILE_MINUTES = 7
SETTINGS = Settings(late_cutoff_us=16 * MINUTE)
"""A cutoff so long that some laggards still correct their window, and others are late."""

OPTIONS = ("--late-cutoff", "16m", "--key-groups", "8")

_MERCHANTS = ["m_eur", *(f"m_{n}" for n in range(12))]
_AMOUNTS = [-2_000_000, -500_000, 300_000, 900_000, 2_500_000]
_BEHIND = [0, 0, 0, 0, 1, 10, 18, 40]
_ROWS = 60
_REFUSED = {
    "malformed": b'{"event_id": "cut',
    "wrong_currency": event("w1", "12:00", 1, currency="GBP"),
    "missing_merchant": event("w2", "12:00", 1, merchant_id=None),
}
_FAR = micros(at("12:00")) + 60 * 365 * 24 * 60 * MINUTE


@dataclass
class Stream:
    """The lines of each file, and the events among them."""

    files: list[list[Event]]
    refused: list[list[str]]
    _shuffles: random.Random = field(repr=False)

    def put(self, folder: Path) -> None:
        """Write the files, to be read one a batch in this order."""
        for number in range(len(self.files)):
            self.put_one(folder, number)

    def put_one(self, folder: Path, number: int) -> None:
        """Write one of the files."""
        lines = [_line(row) for row in self.files[number]]
        lines += [_REFUSED[reason] for reason in self.refused[number]]
        self._shuffles.shuffle(lines)
        put(folder, number, lines)

    def expected(
        self, policy: Path, text: str = POLICY, pause: int | None = None
    ) -> list[BatchResult]:
        """Recompute the stream naively, a file a batch, and the batch without rows at the end.

        There is another one where a run paused before it read the file with this number.
        """
        policy.write_text(text)
        reference = Reference(policy, late_cutoff_us=SETTINGS.late_cutoff_us)
        batches = [*zip([*self.files, []], self.watermarks(), strict=True)]
        if pause is not None:
            batches.insert(pause, ([], batches[pause][1]))
        return [reference.batch(rows, watermark) for rows, watermark in batches]

    def watermarks(self) -> Iterator[int | None]:
        """W of each batch: the newest time of earlier ones less the delay, in whole ms."""
        yield None
        newest = 0
        for rows in self.files:
            plausible = (row.occurred_at_us for row in rows if not row.future_dated)
            newest = max(newest, *plausible)
            yield newest // 1000 * 1000 - SETTINGS.watermark_delay_us


def stream(seed: int, files: int, minutes: int = FILE_MINUTES) -> Stream:
    """Make a stream of so many files, with so many minutes of events each."""
    draw = random.Random(seed)  # noqa: S311 - traffic, not a secret
    made: list[list[Event]] = []
    refused: list[list[str]] = []
    for number in range(files):
        # Some merchants say nothing for a while: their holds end in windows without events.
        active = draw.sample(_MERCHANTS, 7)
        start = micros(at("12:00")) + number * minutes * MINUTE
        rows = [_event(draw, f"e{number}-{i}", active, start, minutes) for i in range(_ROWS)]
        before = [row for earlier in made[-6:] for row in earlier]
        rows += draw.sample(rows, 3) + draw.sample(before, min(len(before), 4))
        made.append(rows)
        refused.append(draw.choices(list(_REFUSED), k=draw.choice([0, 0, 1, 2])))
    return Stream(made, refused, draw)


def _event(
    draw: random.Random, event_id: str, merchants: list[str], start: int, minutes: int
) -> Event:
    merchant = draw.choice(merchants)
    moment = start + draw.randrange(minutes * MINUTE) - draw.choice(_BEHIND) * MINUTE
    ahead = draw.random() < 0.01
    return Event(
        event_id,
        merchant,
        draw.choice(["payout_submitted", "payout_failed"]),
        draw.choice(_AMOUNTS),
        "EUR" if merchant == "m_eur" else "USD",
        _FAR + moment % MINUTE if ahead else moment,
        ahead,
    )


def _line(row: Event) -> bytes:
    fields: dict[str, Any] = {
        "event_id": row.event_id,
        "merchant_id": row.merchant_id,
        "type": row.type,
        "amount_minor": row.amount_minor,
        "currency": row.currency,
        "occurred_at": rfc3339_from_micros(row.occurred_at_us),
    }
    return json.dumps(fields).encode()
