"""A receiver's key-retention window, from the header `holdfast-key-window`.

Section 7 of docs/receivers/PROTOCOL.md defines its syntax and meaning. After that time the
receiver may forget a key, and sending it again may repeat the action.
"""

import re
from dataclasses import dataclass

from holdfast.sink.contract.wire import KEY_WINDOW_FOREVER

_SECONDS = re.compile(r"0|[1-9][0-9]{0,11}")


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """A key-retention window; `seconds` is None for a receiver that keeps keys for ever."""

    seconds: int | None


def parse_key_window(value: str | None) -> KeyWindow | None:
    """Return the window in the header; None without one, and for invalid syntax.

    >>> parse_key_window("3888000")
    KeyWindow(seconds=3888000)
    >>> parse_key_window("45 days") is None
    True
    """
    if value is None:
        return None
    if value == KEY_WINDOW_FOREVER:
        return KeyWindow(None)
    return KeyWindow(int(value)) if _SECONDS.fullmatch(value) else None


def is_shorter(one: KeyWindow, other: KeyWindow) -> bool:
    """Return whether `one` ends before `other`.

    >>> is_shorter(KeyWindow(90), KeyWindow(None)), is_shorter(KeyWindow(None), KeyWindow(90))
    (True, False)
    """
    if one.seconds is None:
        return False
    return other.seconds is None or one.seconds < other.seconds


def window_text(window: KeyWindow) -> str:
    """Return the window as text.

    >>> window_text(KeyWindow(3888000))
    '45 days'
    >>> window_text(KeyWindow(90))
    '90 s'
    """
    seconds = window.seconds
    if seconds is None:
        return "for ever"
    for name, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count, rest = divmod(seconds, size)
        if count and not rest:
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return f"{seconds} s"
