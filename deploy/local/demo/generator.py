"""Two hours of PayLedger traffic, deterministic for a seed, split into files as they would arrive.

Like real streams it is irregular: it has duplicate events, events that correct a published window,
events after the cutoff, some dated in 2099, and some invalid lines. Nothing here reads a clock.
"""

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import NamedTuple

from holdfast.deploy.local.demo import story
from holdfast.deploy.local.demo.story import Row

OPENS = datetime(2025, 11, 3, 11, tzinfo=UTC)
"""Far enough in the past that every machine's clock is after it."""

QUARTER = timedelta(minutes=15)
QUARTERS = 8
TAIL_MINUTES = 18
"""Quiet minutes at the end, in which the last windows and holds close."""

LENGTH = QUARTERS * QUARTER + timedelta(minutes=TAIL_MINUTES)

CUTS = (40, 100, 145, 360, 600)
"""Seconds after each quarter of an hour at which a file ends. Two cuts follow shortly after the
quarter, so that a window is published in one batch and can be corrected in the next."""

MERCHANTS = 300
EVENTS_MIN = 2000
BASE_MINOR = 5_000_000


class Arrival(NamedTuple):
    """One line and its time of arrival."""

    at: datetime
    line: str


@dataclass(frozen=True)
class TrafficFile:
    """The lines that arrived before `closed_at`: one micro-batch."""

    name: str
    closed_at: datetime
    lines: tuple[str, ...]


def merchant_id(rank: int) -> str:
    """Return the merchant with an activity rank; 0 is the most active."""
    number = 200 + rank * 137 % MERCHANTS
    # The main merchant sends only the events of `story`.
    return f"m_{number}" if f"m_{number}" != story.HERO else f"m_{200 + MERCHANTS}"


def policy_toml() -> str:
    """Return the policy file for the traffic."""
    since = f"{OPENS:%Y-%m-%d}T12:00:00Z"
    entries = [f'version = "{OPENS:%Y-%m-%d}"', 'currency = "USD"', "", "[[default]]"]
    entries += [f"limit_minor = {BASE_MINOR}", f"release_level_minor = {BASE_MINOR}"]
    for rank in range(6):
        entries += _override(merchant_id(rank), 4 * BASE_MINOR, 3 * BASE_MINOR)
    # One limit is raised at noon, and one merchant settles in another currency.
    entries += [
        *_override(merchant_id(0), 5 * BASE_MINOR, 4 * BASE_MINOR),
        f"effective_from = {since}",
    ]
    entries += [*_override(merchant_id(9), BASE_MINOR, BASE_MINOR), 'currency = "EUR"']
    return "\n".join(entries) + "\n"


def _override(merchant: str, limit: int, release_level: int) -> list[str]:
    return [
        "",
        "[[merchant]]",
        f'id = "{merchant}"',
        f"limit_minor = {limit}",
        f"release_level_minor = {release_level}",
    ]


def opens_before(now: datetime) -> datetime:
    """Return when traffic must open so that it ends within the quarter of an hour before `now`."""
    return OPENS + (now - OPENS - LENGTH) // QUARTER * QUARTER


def traffic(seed: int, events: int, opens: datetime = OPENS) -> list[TrafficFile]:
    """Return the files in order; about `events` lines in all.

    `opens` is a full quarter of an hour.
    """
    arrivals = list(_arrivals(Random(seed), events, opens))  # noqa: S311 - traffic, not a secret
    arrivals.sort()
    files: list[TrafficFile] = []
    lines: list[str] = []
    waiting = iter(arrivals)
    arrival = next(waiting, None)
    for number, closed_at in enumerate(_cuts(opens)):
        while arrival is not None and arrival.at < closed_at:
            lines.append(arrival.line)
            arrival = next(waiting, None)
        files.append(TrafficFile(f"events-{number:03}.jsonl", closed_at, tuple(lines)))
        lines = []
    return files


class Endless:
    """Traffic that continues from `begins`, with the rate of `traffic` of as many `events`."""

    def __init__(self, seed: int, events: int, begins: datetime) -> None:
        self._random = Random(seed)  # noqa: S311 - traffic, not a secret
        self._events = events
        self._quarter = OPENS + (begins - OPENS) // QUARTER * QUARTER
        self._serials = count(1_000_000)
        self._files = count()
        self._waiting: list[Arrival] = []

    def until(self, now: datetime) -> TrafficFile:
        """Return what has arrived since the last call; `now` never goes back."""
        while self._quarter <= now:
            rows = _quarter(self._random, self._events, self._quarter, self._serials)
            self._waiting += _arriving(self._random, rows)
            self._quarter += QUARTER
        self._waiting.sort()
        arrived = bisect_left(self._waiting, now, key=attrgetter("at"))
        lines = tuple(arrival.line for arrival in self._waiting[:arrived])
        del self._waiting[:arrived]
        return TrafficFile(f"live-{next(self._files):08}.jsonl", now, lines)


def _cuts(opens: datetime) -> Iterator[datetime]:
    ends = opens + LENGTH
    quarter = opens
    while True:
        for seconds in CUTS:
            cut = quarter + timedelta(seconds=seconds)
            if cut >= ends:
                yield ends
                return
            yield cut
        quarter += QUARTER


def _arrivals(random: Random, events: int, opens: datetime) -> Iterator[Arrival]:
    serials = count(100_001)
    rows = [
        row
        for quarter in range(QUARTERS)
        for row in _quarter(random, events, opens + quarter * QUARTER, serials)
    ]
    rows += _tail(random, opens)
    rows += story.rows(opens)
    yield from _arriving(random, rows)
    for minute, line in enumerate(story.unusable_lines(opens)):
        yield Arrival(opens + timedelta(minutes=8 * minute + 3), line)


def _arriving(random: Random, rows: Iterable[Row]) -> Iterator[Arrival]:
    for row in rows:
        at = row.occurred_at + timedelta(seconds=0.3 + min(random.expovariate(1 / 5), 25))
        at = row.arrives_at or at
        yield Arrival(at, row.line)
        if random.random() < 0.015:
            again = at if random.random() < 0.4 else at + timedelta(seconds=random.uniform(5, 900))
            yield Arrival(again, row.line)


def _quarter(random: Random, events: int, start: datetime, serials: Iterator[int]) -> Iterator[Row]:
    """Return the events of a quarter of an hour, of which two hours have about `events`."""
    weights = [(rank + 1) ** -0.8 for rank in range(MERCHANTS)]
    per_weight = events / QUARTERS / sum(weights)
    for rank, weight in enumerate(weights):
        total = weight * per_weight
        number = int(total) + (random.random() < total % 1)
        target = _target(rank) * random.lognormvariate(0, 0.45)
        for _ in range(number):
            yield _row(random, f"e{next(serials)}", rank, start, target / max(total, 1))
        if rank < 60 and random.random() < 0.15:
            yield _correction(random, f"e{next(serials)}", rank, start)


def _target(rank: int) -> float:
    """Return the typical exposure of a merchant in a quarter of an hour, in minor units."""
    if rank < 6:
        return 3.4 * BASE_MINOR
    if rank < 60:
        return BASE_MINOR * (0.95 - 0.006 * rank)
    return 0.25 * BASE_MINOR


def _row(random: Random, event_id: str, rank: int, start: datetime, mean: float) -> Row:
    kind = random.choices(
        ("charge", "refund", "dispute", "payout_submitted", "payout_settled"), (78, 9, 3, 5, 5)
    )[0]
    # 0.74 is the mean factor of an event, given the weights above and the factors below.
    size = mean / 0.74 * random.lognormvariate(-0.125, 0.5)
    factor = {"charge": 1.0, "refund": -0.4, "dispute": 1.5, "payout_submitted": -1.0}.get(
        kind, 0.0
    )
    occurred_at = start + random.random() * QUARTER
    arrives_at = None
    if random.random() < 0.006:
        # It arrives after the window's cutoff.
        arrives_at = start + QUARTER + timedelta(seconds=random.uniform(370, 1000))
    return Row(
        event_id,
        merchant_id(rank),
        kind,
        round(size * factor),
        _currency(rank),
        occurred_at,
        arrives_at,
    )


def _correction(random: Random, event_id: str, rank: int, start: datetime) -> Row:
    """Make an event that arrives after its window was published and before the cutoff."""
    end = start + QUARTER
    kind, sign = random.choice((("refund", -1), ("dispute", 1)))
    amount = sign * round(_target(rank) * random.uniform(0.2, 0.8))
    occurred_at = end - timedelta(seconds=random.uniform(1, 180))
    arrives_at = end + timedelta(seconds=random.uniform(101, 355))
    return Row(event_id, merchant_id(rank), kind, amount, _currency(rank), occurred_at, arrives_at)


def _tail(random: Random, opens: datetime) -> Iterator[Row]:
    """Small events of small merchants, which advance the watermark and cause no holds."""
    start = opens + QUARTERS * QUARTER
    for second in range(0, TAIL_MINUTES * 60 - 30, 5):
        rank = random.randrange(100, MERCHANTS)
        at = start + timedelta(seconds=second + random.random())
        yield Row(
            f"e{900_000 + second}",
            merchant_id(rank),
            "charge",
            random.randrange(500, 9000),
            "USD",
            at,
        )


def _currency(rank: int) -> str:
    return "EUR" if rank == 9 else "USD"


PATTERN = "*.jsonl"


def write_files(directory: Path, files: Iterable[TrafficFile]) -> None:
    """Write each file under a temporary name and rename it, so that Spark never reads part of one.

    The file source reads files by modification time, which is therefore the time of the traffic.
    """
    directory.mkdir(parents=True)
    for file in files:
        add_file(directory, file)


def add_file(directory: Path, file: TrafficFile) -> None:
    """Write one file, as `write_files` does."""
    # The file source ignores names that begin with a dot.
    temporary = directory / f".{file.name}"
    temporary.write_text("".join(f"{line}\n" for line in file.lines), encoding="utf-8")
    modified = file.closed_at.timestamp()
    os.utime(temporary, (modified, modified))
    temporary.rename(directory / file.name)


def files_in_order(directory: Path) -> list[Path]:
    """Return the files in the order of the file source."""
    return sorted(directory.glob(PATTERN), key=lambda path: path.stat().st_mtime_ns)
