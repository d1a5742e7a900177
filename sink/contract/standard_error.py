"""A standard error that stops no work: what cannot be written is counted and dropped.

The log of a service goes there. A full disk under it, a pipe that nobody reads or a reader that is
gone must not end what the service is for.
"""

import io
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from select import PIPE_BUF, POLLOUT, poll
from threading import RLock

PATIENCE_MS = 250
"""How long one write waits for a reader. After that none waits, until the reader reads again."""


_UNREAD = "nothing reads it"


def _in_words(lines: int, why: str) -> str:
    return f"holdfast: {lines} lines of this log were dropped ({why}); nothing else was lost\n"


class StandardError(io.RawIOBase):
    """Writes to a file descriptor, and never fails or blocks for long.

    The first text after dropped lines follows a report of how many they were.
    """

    def __init__(self, descriptor: int) -> None:
        """`descriptor` stays open."""
        self.dropped = 0
        """Lines that were not written, in total."""
        self.report: Callable[[int, str], str] = _in_words
        """Makes the report of so many lines, for this reason; it ends with a newline."""
        self._descriptor = descriptor
        self._unreported = 0
        self._why = ""
        self._torn = False
        self._patience_ms = PATIENCE_MS
        self._room = poll()
        self._room.register(descriptor, POLLOUT)
        self._never_waits = _opened_again(descriptor)
        self._lock = RLock()

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write `data` or drop the rest of it; returns its length."""
        with self._lock:
            before = b""
            if self._unreported:
                # The rest of a line that was cut off is among the dropped ones.
                before = b"\n" if self._torn else b""
                before += self.report(self._unreported, self._why).encode()
            if before and self._send(before):
                self._drop(bytes(data))
                return len(data)
            self._unreported = 0
            if left := self._send(bytes(data)):
                self._drop(left)
        return len(data)

    def _send(self, data: bytes) -> bytes:
        """Write `data`; returns what could not be written."""
        while data:
            try:
                # A pipe takes so much at once if it takes anything.
                if not self._room.poll(self._patience_ms):
                    self._patience_ms, self._why = 0, _UNREAD
                    return data
                sent = os.write(self._never_waits, data[:PIPE_BUF])
            except BlockingIOError:  # another process took the room
                self._patience_ms, self._why = 0, _UNREAD
                return data
            except OSError as error:
                self._why = error.strerror or type(error).__name__
                return data
            self._torn = data[:sent][-1:] != b"\n"
            self._patience_ms = PATIENCE_MS
            data = data[sent:]
        return data

    def _drop(self, data: bytes) -> None:
        lines = data.count(b"\n") or 1
        self.dropped += lines
        self._unreported += lines


def _opened_again(descriptor: int) -> int:
    """Return a descriptor of the same pipe on which no write waits; without one, `descriptor`.

    Other processes write to the pipe and may take the room that a poll saw. To change `descriptor`
    itself would change theirs.
    """
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        with suppress(OSError):  # no /proc, or a pipe of another user
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
    return descriptor


def install() -> None:
    """Let `sys.stderr` drop what it cannot write. Once for a process, before anything logs."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
    with suppress(OSError):  # a stream of the tests has no descriptor
        sys.stderr = io.TextIOWrapper(
            StandardError(sys.stderr.fileno()),
            sys.stderr.encoding,
            "backslashreplace",
            write_through=True,
        )


def installed() -> StandardError | None:
    """Return what `install` has put behind `sys.stderr`."""
    buffer = getattr(sys.stderr, "buffer", None)
    return buffer if isinstance(buffer, StandardError) else None
