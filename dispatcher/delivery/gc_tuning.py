"""Garbage-collector tuning of a dispatcher process."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_MAX = 50_000
"""Number of new objects that starts a collection of the youngest generation.

A delivery leaves almost no cycles. Claimed lanes hold thousands of objects, so with CPython's
default of 700 nearly all objects that a collection visits are still in use.
"""


@contextmanager
def tuned_for_deliveries() -> Iterator[None]:
    """Set `YOUNG_MAX` and exempt already loaded objects while the block runs."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
