"""Retention periods of entries and attempts: `90d`."""

import re

DAYS_MAX = 36_500
"""As the database function `days_older_than`."""

_DAYS = re.compile(r"([0-9]{1,5})d", re.ASCII)


def whole_days(text: str) -> int:
    """Return the number of days: `90d` is 90. Raises `ValueError` for anything else.

    At least one, so that the partition of a batch written at midnight stays.
    """
    found = _DAYS.fullmatch(text)
    days = int(found[1]) if found else 0
    if not 1 <= days <= DAYS_MAX:
        raise ValueError(f"{text!r} is not a number of days: expected 1d to {DAYS_MAX}d")
    return days
