"""Retry-After is read as the RFC writes it, and otherwise not at all."""

from datetime import UTC, datetime

import pytest

from holdfast.dispatcher.outbound.retry_after import SECONDS_MAX, parse_retry_after

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 120 ", 120),
        ("9999999", 9_999_999),
        ("99999999", 99_999_999),
        ("99999999999999999999", SECONDS_MAX),
        ("1" * 10_000, SECONDS_MAX),
        ("Mon Nov  2 12:02:00 2026", 120),
        ("Tue Nov 10 12:00:00 2026", 691_200),
        ("Mon, 02 Nov 2026 12:02:00 GMT", 120),
        ("Monday, 02-Nov-26 12:02:00 GMT", 120),
        ("Mon, 02 Nov 2026 11:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 251_608_679_999),
    ],
)
def test_seconds_and_dates_are_understood(value: str, seconds: float) -> None:
    assert parse_retry_after((value,), NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "-5", "+5", "1_000", "1e9", "inf", "nan", "0x10", "1.5", "120, 240"),
        *("١٢٠", "soon", "٣"),
        "Wed, 31 Feb 2026 12:00:00 GMT",
        "Mon Nov 02 12:02:00 2026",
        "Mon Feb 31 12:02:00 2026",
        "Mon Nov  2 12:02:00 2026 EST",
        "Mon, 02 Nov 2026 12:02:00 -0000",
        "Mon, 02 Nov 2026 12:02:00",
        "Mon, 02 Nov 99999 12:02:00 GMT",
        "Mon, 02 Nov 2026 25:02:00 GMT",
    ],
)
def test_anything_else_is_ignored(value: str) -> None:
    assert parse_retry_after((value,), NOW) is None


def test_none_or_two_fields_say_nothing() -> None:
    assert parse_retry_after((), NOW) is None
    assert parse_retry_after(("5", "6"), NOW) is None
