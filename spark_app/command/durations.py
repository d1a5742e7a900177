"""Durations as people write them: `500ms`, `30s`, `2m`, `1h`."""

import re

_FORM = re.compile(r"(\d{1,9})\s*(ms|s|m|h)")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def milliseconds(text: str) -> int:
    """Read a duration; raises ValueError in words.

    >>> milliseconds("2m")
    120000
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: expected a number and ms, s, m or h")
    return int(match[1]) * _MILLISECONDS[match[2]]
