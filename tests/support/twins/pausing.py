"""Work of a process in a thread of its own that stops where another process may act.

One thread is at work at any moment, so a run of steps is repeatable: a call works until it ends or
pauses, and whoever drives it decides what happens before it resumes.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import tenacity.nap

SECONDS_MAX: Final = 120
"""A call that neither ends nor pauses for so long hangs."""


class Killed(BaseException):
    """The process was killed where its call had paused."""


@dataclass(frozen=True)
class Paused:
    """A call that waits, and where."""

    where: str


class Call:
    """One call of a process."""

    _current = threading.local()

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._resumed = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._outcome: Any = None
        self.is_killed = False
        self.pauses = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> Any:
        """Work until the call pauses (`Paused`) or ends: its result, or the exception it raised."""
        self._resumed.release()
        if not self._stopped.acquire(timeout=SECONDS_MAX):
            raise TimeoutError(f"a call neither ended nor paused for {SECONDS_MAX} s")
        return self._outcome

    def kill(self) -> None:
        """End it where it has paused, as SIGKILL does: nothing that it has to clean up is done."""
        self.is_killed = True
        while self._thread.is_alive():
            self.resume()
            self._thread.join(0.01)

    def _run(self) -> None:
        Call._current.call = self
        self._resumed.acquire()
        try:
            self._outcome = None if self.is_killed else self._work()
        except Exception as error:  # noqa: BLE001 - the driver of the call judges it
            self._outcome = error
        except Killed:
            self._outcome = None
        self._stopped.release()

    @staticmethod
    def current() -> "Call | None":
        """Return the call of this thread; None outside one."""
        return getattr(Call._current, "call", None)

    @staticmethod
    def pause(where: str) -> None:
        """Let whoever drives this thread's call act; does nothing outside a call."""
        call = Call.current()
        if call is None:
            return
        call.pauses += 1
        call._outcome = Paused(where)
        call._stopped.release()
        call._resumed.acquire()
        if call.is_killed:
            raise Killed


class _Clock:
    """What `tenacity` has in place of the module `time`."""

    @staticmethod
    def sleep(_seconds: float) -> None:
        Call.pause("retry")


@contextmanager
def retries_pause() -> Iterator[None]:
    """Let each call pause before it tries again, in place of a sleep. Elsewhere nothing waits."""
    with patch.object(tenacity.nap, "time", _Clock):
        yield
