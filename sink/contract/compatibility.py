"""What Python 3.10 does not have, for the sink, the receiver kit and the migrations."""

import re
import sys
from datetime import datetime, timezone

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Members that are strings, and print as they are."""

        __str__ = str.__str__
        __format__ = str.__format__  # type: ignore[assignment]


__all__ = ["UTC", "StrEnum", "parse_time"]

UTC = timezone.utc

_FRACTION = re.compile(r"\.(\d{1,6})")


def parse_time(text: str) -> datetime:
    """Parse RFC 3339 as `datetime.fromisoformat` does since Python 3.11; raises `ValueError`.

    >>> parse_time("2026-11-02T12:15:00.5Z").microsecond
    500000
    """
    if sys.version_info < (3, 11):
        text = text.replace("Z", "+00:00")
        text = _FRACTION.sub(lambda fraction: f".{fraction[1]:0<6}", text)
    return datetime.fromisoformat(text)
