"""Ctrl-C without loose ends.

A signal is only noted; the demo looks at the note where it can stop cleanly. An exception in the
middle of starting a process would leave a process that nobody knows of.
"""

import signal
import time
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOTICE_SECONDS = 0.05


class Interrupted(Exception):
    """Somebody asked the demo to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Interrupts:
    """Notes SIGINT, SIGTERM and SIGHUP while the block runs."""

    def __init__(self) -> None:
        self._noted: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # Whoever started the demo under nohup wants it to outlive the terminal.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        if self._noted is not None:
            raise Interrupted(self._noted)

    def pause(self, seconds: float) -> None:
        """Wait, but not through a signal; raises `Interrupted`."""
        deadline = time.monotonic() + seconds
        self.check()
        while (left := deadline - time.monotonic()) > 0:
            # time.sleep goes on after a signal whose handler raises nothing.
            time.sleep(min(left, NOTICE_SECONDS))
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's form
        if self._noted is None:
            self._noted = number
