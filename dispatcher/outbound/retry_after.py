"""Retry-After (RFC 9110 section 10.2.3), parsed strictly: `1*DIGIT` in ASCII or an HTTP-date.

`int()` would accept `+5`, `1_000` and Arabic digits, and the standard library's date parser accepts
much that is not a date. An invalid value is ignored: the schedule decides alone.
"""

import re
from datetime import datetime
from email.utils import parsedate_to_datetime

SECONDS_MAX = 10**9
"""More seconds count as this many, far beyond any hold (`RETRY_AFTER_SECONDS_MAX`)."""

_SECONDS = re.compile(r"[0-9]+")
_DATE = re.compile(r"[A-Za-z]{3,9}, [ -~]{10,32}")
_ASCTIME = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} ( [1-9]|[1-3][0-9]) [0-9:]{8} [0-9]{4}")


def parse_retry_after(values: tuple[str, ...], now: datetime) -> float | None:
    """Return the seconds to wait from `now` (0 or more), or None without a usable value.

    `values` are all Retry-After fields of the response: two of them are invalid.
    """
    if len(values) != 1:
        return None
    value = values[0].strip(" \t")
    if _SECONDS.fullmatch(value):
        return min(float(value), SECONDS_MAX)
    if _ASCTIME.fullmatch(value):
        value += " +0000"  # which the RFC says it is
    elif not _DATE.fullmatch(value):
        return None
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        return None  # "-0000": unknown zone
    return max(0.0, (moment - now).total_seconds())
