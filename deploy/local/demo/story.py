"""The traffic that is the same in every run: two merchants, and invalid lines.

m_482 is the main example. From 12:00 to 12:15 it collects $85,000, over its limit of $50,000: its
payouts are held. From 12:15 on, e917, e918 and e919 add up to $40,000, the payout e920 takes off
$18,000, and the window closes at $22,000: the hold ends.

m_901 is held and then sends no more events; its hold must end anyway.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

_PAST = {"block": "blocked", "release": "released"}


def money(minor: int, currency: str = "USD") -> str:
    """Format an amount in minor units, such as `$85,000` or `EUR 12.50`.

    >>> money(8_500_000), money(-1250, "EUR")
    ('$85,000', '-EUR 12.50')
    """
    units, cents = divmod(abs(minor), 100)
    sign = "-" if minor < 0 else ""
    symbol = "$" if currency == "USD" else f"{currency} "
    return f"{sign}{symbol}{units:,}" + (f".{cents:02}" if cents else "")


def sentence(row: Mapping[str, Any]) -> str:
    """Describe an action of the payouts service on a merchant; `row` is from its history."""
    exposure = money(row["exposure_minor"], row["currency"])
    limit = money(row["limit_minor"], row["currency"])
    return (
        f"{row['merchant_id']}'s payouts are {_PAST[row['action']]}: {exposure} between"
        f" {row['window_start']:%H:%M} and {row['window_end']:%H:%M}, limit {limit}."
    )


HERO = "m_482"
SILENT = "m_901"


@dataclass(frozen=True)
class Row:
    """An event of the traffic; `arrives_at` is set if it arrives later than it occurred."""

    event_id: str
    merchant_id: str
    type: str
    amount_minor: int
    currency: str
    occurred_at: datetime
    arrives_at: datetime | None = None

    @property
    def line(self) -> str:
        """The event as one line of its file."""
        return event_line(
            self.event_id,
            self.merchant_id,
            self.type,
            self.amount_minor,
            self.currency,
            f"{self.occurred_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        )


def event_line(*values: str | float | None) -> str:
    """Return one JSON object; the values are in the order of the columns."""
    columns = ("event_id", "merchant_id", "type", "amount_minor", "currency", "occurred_at")
    return json.dumps(dict(zip(columns, values, strict=True)), separators=(",", ":"))


def rows(opens: datetime) -> Iterator[Row]:
    """Return the events of both merchants; `opens` is what the clocks below call 11:00."""

    def at(clock: str) -> datetime:
        hours, minutes, seconds = (int(part) for part in clock.split(":"))
        return opens + timedelta(hours=hours - 11, minutes=minutes, seconds=seconds)

    for event_id, kind, amount, clock in _HERO_EVENTS:
        yield Row(event_id, HERO, kind, amount, "USD", at(clock))
    # A duplicate of the event, some minutes later: it must not count again.
    yield Row("e918", HERO, "charge", 1_500_000, "USD", at("12:19:40"), at("12:24:00"))
    yield Row("s1", SILENT, "charge", 4_100_000, "USD", at("11:47:00"))
    yield Row("s2", SILENT, "dispute", 2_200_000, "USD", at("11:52:30"))


_HERO_EVENTS = (
    ("e901", "charge", 900_000, "11:07:12"),
    ("e902", "charge", 1_150_000, "11:26:40"),
    ("e903", "refund", -200_000, "11:28:05"),
    ("e904", "charge", 1_700_000, "11:41:30"),
    ("e905", "payout_submitted", -600_000, "11:52:00"),
    ("e906", "charge", 1_400_000, "11:55:20"),
    ("e907", "charge", 1_800_000, "12:01:10"),
    ("e908", "charge", 2_100_000, "12:03:45"),
    ("e909", "dispute", 600_000, "12:05:02"),
    ("e910", "charge", 1_250_000, "12:06:30"),
    ("e911", "charge", 900_000, "12:08:55"),
    ("e912", "refund", -150_000, "12:10:20"),
    ("e913", "charge", 1_000_000, "12:11:40"),
    ("e914", "charge", 1_000_000, "12:13:50"),
    ("e917", "charge", 1_500_000, "12:17:05"),
    ("e918", "charge", 1_500_000, "12:19:40"),
    ("e919", "charge", 1_000_000, "12:22:15"),
    ("e920", "payout_submitted", -1_800_000, "12:26:10"),
    ("e921", "payout_settled", 0, "12:33:00"),
    ("e922", "charge", 1_300_000, "12:38:25"),
)


def unusable_lines(opens: datetime) -> Iterator[str]:
    """Return lines that are not valid events, and events dated in the far future."""
    time = f"{opens:%Y-%m-%dT%H}:30:00Z"
    yield '{"event_id":"bad1","merchant_id":"m_2'
    yield event_line("bad2", None, "charge", 100, "USD", time)
    yield event_line("bad3", "m_201", "charge", float("nan"), "USD", time)
    yield event_line("bad4", "m_202", "charge", 10**20, "USD", time)
    yield event_line("bad5\x00", "m_203", "charge", 100, "USD", time)
    yield event_line("bad6", "m_204", "charge", 100, "USD", "yesterday")
    yield event_line("bad7", HERO, "charge", 9_000_000, "GBP", time)
    yield event_line("bad8", "m_205", "charge", 12.5, "USD", time)
    yield event_line(None, "m_206", "charge", 100, "USD", time)
    yield event_line("bad10", "m_207", "charge", None, "USD", time)
    for number in range(3):
        yield event_line(f"f{number}", HERO, "charge", 9_000_000, "USD", "2099-12-31T23:59:59Z")
