"""How much of what was written to a socket the kernel still holds."""

import fcntl
import sys
import termios

_EMPTY = bytes(4)


def unacknowledged(descriptor: int) -> int:
    """Return how many bytes the other side's kernel has not acknowledged yet.

    Every segment acknowledges what was received so far, so this is 0 after the answer of a receiver
    that read the whole request. It is also 0 where the kernel cannot report it: on other systems
    than Linux, and for a closed socket.
    """
    if sys.platform != "linux":
        return 0
    try:
        unsent = fcntl.ioctl(descriptor, termios.TIOCOUTQ, _EMPTY)
    except (OSError, ValueError):
        return 0
    return int.from_bytes(unsent, sys.byteorder)
