"""SIGTERM and SIGINT: the running batch is finished, then the query stops."""

import signal
import sys
from threading import Event
from types import FrameType, TracebackType
from typing import Self

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """While entered, the first signal sets `requested`; a second one ends the process at once.

    `install` sets the handlers, and again after other code has replaced them.
    """

    def __init__(self) -> None:
        self.requested = Event()
        self._before = {number: signal.getsignal(number) for number in _NUMBERS}

    def install(self) -> None:
        if not self.requested.is_set():
            for number in _NUMBERS:
                signal.signal(number, self._on_signal)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def request(self, why: str) -> None:
        """Ask for the stop, from any thread; says so once."""
        if not self.requested.is_set():
            self.requested.set()
            print(f"{why}: stopping after the running batch", file=sys.stderr, flush=True)  # noqa: T201 - the command's own report

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        for each in _NUMBERS:
            signal.signal(each, signal.SIG_DFL)
        self.request(signal.Signals(number).name)
