"""Amounts, times and actions as text for people."""

from collections.abc import Mapping
from typing import Any

_PAST = {"block": "blocked", "release": "released"}


def money(minor: int, currency: str = "USD") -> str:
    """Format an amount in minor units, such as `$85,000` or `EUR 12.50`.

    >>> money(8_500_000), money(-1250, "EUR")
    ('$85,000', '-EUR 12.50')
    """
    whole, cents = divmod(abs(minor), 100)
    sign = "-" if minor < 0 else ""
    symbol = "$" if currency == "USD" else f"{currency} "
    return f"{sign}{symbol}{whole:,}" + (f".{cents:02}" if cents else "")


def sentence(row: Mapping[str, Any]) -> str:
    """Describe an action of the payouts service on a merchant; `row` is from its history."""
    exposure = money(row["exposure_minor"], row["currency"])
    limit = money(row["limit_minor"], row["currency"])
    return (
        f"{row['merchant_id']}'s payouts are {_PAST[row['action']]}: {exposure} between"
        f" {row['window_start']:%H:%M} and {row['window_end']:%H:%M}, limit {limit}."
    )
