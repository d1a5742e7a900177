"""Sizes as people write them: `512m`, `2g`."""

import re

_FORM = re.compile(r"(\d{1,6})\s*([mg])b?", re.IGNORECASE)
_MEBIBYTES = {"m": 1, "g": 1024}


def mebibytes(text: str) -> int:
    """Read a size in whole mebibytes, at least one; raises ValueError in words.

    >>> mebibytes("2g")
    2048
    """
    match = _FORM.fullmatch(text.strip())
    size = int(match[1]) * _MEBIBYTES[match[2].lower()] if match else 0
    if not size:
        raise ValueError(f"{text!r} is not a size: expected a number, at least 1, and m or g")
    return size
