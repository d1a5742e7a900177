"""This process's own clock, for measuring how long a lease may still be trusted."""

import time


def seconds() -> float:
    """Return seconds that also pass while the machine sleeps.

    Linux's monotonic clock stands still during a suspend; a lease of the database does not.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
