"""Which batches are new to somebody who follows them by number.

A number is taken when a batch begins to be written and seen when it commits, so a lower one may
appear after a higher one. What was passed over is looked for again for a while; most such numbers
never appear, because their transaction was rolled back.
"""

from collections.abc import Collection

PATIENCE_SECONDS = 600.0
PASSED_OVER_MAX = 1_000


class Followed:
    """Numbers seen so far."""

    def __init__(self, after: int) -> None:
        """`after`: nothing up to this number is looked for."""
        self.after = after
        self._missing: dict[int, float] = {}

    @property
    def missing(self) -> list[int]:
        """The numbers up to `after` that are still looked for, the lowest first."""
        return sorted(self._missing)

    def see(self, numbers: Collection[int], moment: float) -> None:
        """Take note of numbers that appeared, at a moment of a clock in seconds."""
        for number in numbers:
            self._missing.pop(number, None)
        newest = max(numbers, default=self.after)
        passed_over = set(range(max(self.after, newest - PASSED_OVER_MAX) + 1, newest))
        self._missing |= dict.fromkeys(passed_over - set(numbers), moment)
        self.after = max(self.after, newest)
        kept = [n for n, at in self._missing.items() if moment - at < PATIENCE_SECONDS]
        self._missing = {n: self._missing[n] for n in sorted(kept)[-PASSED_OVER_MAX:]}
