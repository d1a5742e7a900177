"""How the interpreter looks after memory while a dispatcher runs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_MAX = 50_000
"""How many new objects there may be before those that only refer to each other are looked for.

A delivery leaves almost none. What is claimed and not settled holds thousands of objects, so with
CPython's own 700 nearly all that the search looks at is still in use.
"""


@contextmanager
def tuned_for_deliveries() -> Iterator[None]:
    """Set that, and leave what is loaded already out of the search; afterwards all is as before."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
