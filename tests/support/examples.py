"""How many examples Hypothesis draws of a property."""

import os

SHARE = "HOLDFAST_TEST_EXAMPLES"
"""The share of the examples that a test names: CI draws a quarter, `make properties` four times."""


def examples(count: int) -> int:
    """Return how many of so many examples to draw; each run draws others."""
    return max(1, round(count * float(os.environ.get(SHARE, "0.25"))))
