"""Times as a person writes them, in every command and in the console. Pure.

The database's clock decides what `2h` and `yesterday` mean; days begin at midnight in UTC.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

EXACT = "2026-11-02, or a time with a zone (2026-11-02T12:15:00Z)"
FORMS = f"2h (also s, m, d, w), today, yesterday, {EXACT}"

_SPAN = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS = {"today": 0, "yesterday": 1}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class When:
    """A moment: `fixed`, or so long before now, or the beginning of a day so many days before."""

    fixed: datetime | None = None
    back: timedelta = timedelta(0)
    midnight: bool = False

    def at(self, now: datetime) -> datetime:
        """Return the moment in UTC, where it is `now`.

        >>> when("yesterday").at(datetime(2026, 11, 2, 12, tzinfo=UTC)).isoformat()
        '2026-11-01T00:00:00+00:00'
        """
        if self.fixed is not None:
            return self.fixed
        try:
            moment = now.astimezone(UTC) - self.back
        except OverflowError:
            return datetime(1, 1, 1, tzinfo=UTC)
        return datetime.combine(moment.date(), time(), UTC) if self.midnight else moment


def when(text: str) -> When:
    """Parse a time in one of `FORMS`. Raises `ValueError` for another text.

    >>> when("90m").back, when("2026-11-02").fixed == when("2026-11-02T01:00:00+01:00").fixed
    (datetime.timedelta(seconds=5400), True)
    """
    plain = text.strip()
    if span := _SPAN.fullmatch(plain):
        return When(back=timedelta(**{_UNITS[span[2]]: int(span[1])}))
    if (days := _DAYS.get(plain.lower())) is not None:
        return When(back=timedelta(days=days), midnight=True)
    return When(_fixed(plain, FORMS))


def exact(text: str) -> datetime:
    """Parse a time that no clock decides, in one of `EXACT`. Raises `ValueError` for another."""
    return _fixed(text.strip(), EXACT)


def _fixed(text: str, forms: str) -> datetime:
    try:
        if _DATE.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        moment = datetime.fromisoformat(text if text.isascii() else "")
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is not a time: write {forms}.")
