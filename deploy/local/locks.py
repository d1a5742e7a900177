"""File locks (flock), which the kernel releases when a process dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.sink.contract.exits import CommandError

POLL_SECONDS = 0.05


def acquire(path: Path, seconds: float, otherwise: str) -> int:
    """Lock `path` within `seconds`; returns the descriptor that holds the lock until it is closed.

    Raises `CommandError` with the text `otherwise` if the lock stays taken. A child that inherits
    the descriptor also holds the lock until it ends.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandError(
            f"{path} cannot be opened ({error.strerror}); nothing was changed. Use the account that"
            " created it, or choose another --directory.",
            code="directory_unusable",
        ) from error
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise CommandError(otherwise, code="directory_in_use") from None
                time.sleep(POLL_SECONDS)
            else:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def locked(path: Path, seconds: float, otherwise: str) -> Iterator[int]:
    """Hold the lock of `path` inside the block; see `acquire`."""
    descriptor = acquire(path, seconds, otherwise)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
