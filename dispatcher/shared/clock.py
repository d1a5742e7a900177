"""This process's clock, for measuring how long a lease may be trusted."""

import time
from collections.abc import Callable
from functools import partial

_boot = getattr(time, "CLOCK_BOOTTIME", None)
_read: Callable[[], float] = time.monotonic if _boot is None else partial(time.clock_gettime, _boot)


def seconds() -> float:
    """Return seconds that also pass while the machine is suspended.

    Linux's monotonic clock stops during a suspend; a lease in the database does not.
    """
    return _read()
