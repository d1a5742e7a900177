"""What the kernel still holds of what was written to a socket."""

import fcntl
import sys
import termios

_EMPTY = bytes(4)


def unacknowledged(descriptor: int) -> int:
    """Return how many bytes the other side's kernel has not confirmed yet.

    It confirms with each segment what it has taken so far, so behind the answer of a receiver that
    read the whole request this is 0. It is 0, too, where the kernel cannot be asked: elsewhere than
    on Linux, or because the socket is closed.
    """
    if sys.platform != "linux":
        return 0
    try:
        held = fcntl.ioctl(descriptor, termios.TIOCOUTQ, _EMPTY)
    except (OSError, ValueError):
        return 0
    return int.from_bytes(held, sys.byteorder)
