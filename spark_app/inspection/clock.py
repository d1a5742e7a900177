"""Moments as a person reads them: short clock times, and the date where it is another one."""

from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def day(moment_us: int) -> date:
    """Return the UTC date of a moment."""
    return _moment(moment_us).date()


def clock(moment_us: int, today: date | None = None) -> str:
    """Return a moment's UTC clock time, after its date when that is not `today`.

    Seconds and their fraction are shown only where they are not zero.

    >>> clock(1_730_723_400_000_000, date(2024, 11, 4))
    '12:30'
    >>> clock(1_730_723_370_500_000)
    '2024-11-04 12:29:30.5'
    """
    moment = _moment(moment_us)
    text = f"{moment:%H:%M}"
    if moment.second or moment.microsecond:
        text = f"{moment:%H:%M:%S}"
    if moment.microsecond:
        text += f".{moment.microsecond:06}".rstrip("0")
    return text if moment.date() == today else f"{moment.date().isoformat()} {text}"


def instant(moment_us: int) -> str:
    """Return a moment in full.

    >>> instant(1_730_723_370_000_000)
    '2024-11-04 12:29:30Z'
    """
    moment = _moment(moment_us)
    seconds = f"{moment:%H:%M:%S}"
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""
    return f"{moment.date().isoformat()} {seconds}{fraction}Z"


def span(start_us: int, end_us: int) -> str:
    """Return a window's clock times, without its date.

    >>> span(1_730_722_500_000_000, 1_730_723_400_000_000)
    '12:15-12:30'
    """
    return f"{clock(start_us, day(start_us))}-{clock(end_us, day(end_us))}"


def _moment(moment_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=moment_us)
