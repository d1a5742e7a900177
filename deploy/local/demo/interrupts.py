"""Clean handling of Ctrl-C.

A signal is only recorded, and the demo checks the record where it can stop cleanly. An exception in
the middle of a process start would leave an unknown process behind.
"""

import signal
import time
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOTICE_SECONDS = 0.05


class Interrupted(Exception):
    """A signal requested the end of the demo."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Interrupts:
    """Records SIGINT, SIGTERM and SIGHUP while the block runs."""

    def __init__(self) -> None:
        self._noted: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # Under nohup, SIGHUP is ignored: the demo should outlive the terminal.
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
        """Raise `Interrupted` if a signal was received."""
        if self._noted is not None:
            raise Interrupted(self._noted)

    def pause(self, seconds: float) -> None:
        """Sleep; raises `Interrupted` on a signal."""
        deadline = time.monotonic() + seconds
        self.check()
        while (left := deadline - time.monotonic()) > 0:
            # time.sleep continues after a signal whose handler does not raise.
            time.sleep(min(left, NOTICE_SECONDS))
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's form
        if self._noted is None:
            self._noted = number
