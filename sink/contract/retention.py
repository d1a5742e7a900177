"""Retention periods of entries and attempts: `90d`."""

from holdfast.sink.contract.numbers import is_whole

DAYS_MAX = 36_500
"""As the database function `days_older_than`."""


def whole_days(text: str) -> int:
    """Return the number of days: `90d` is 90. Raises `ValueError` for anything else.

    At least one, so that the partition of a batch written at midnight stays.
    """
    days = int(text[:-1]) if text.endswith("d") and is_whole(text[:-1]) else 0
    if not 1 <= days <= DAYS_MAX:
        raise ValueError(f"{text!r} is not a number of days: expected 1d to {DAYS_MAX}d")
    return days
