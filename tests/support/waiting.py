"""Wait for a condition, with a deadline that a busy machine does not meet by accident; a clock."""

import time
from collections.abc import Callable
from threading import Event

POLL_SECONDS = 0.02


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return as soon as `condition()` is true; fail when it is not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        Event().wait(POLL_SECONDS)


class Clock:
    """Seconds that a test moves on."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
