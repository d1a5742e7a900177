"""How many rows of a batch may be refused before the batch itself is refused.

A few bad rows are quarantined and stop nothing. A batch with many has another cause: a producer
changed its format, or the job has a fault. To quarantine all of it would look like success.
"""

from dataclasses import dataclass

from holdfast.sink.errors import TooManyRefused

REFUSED_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class QuarantineLimit:
    """The maximum of refused rows with which a batch is written. Raises `ValueError` if invalid.

    >>> QuarantineLimit(rows=10).exceeded(quarantined=11, of=1_000_000)
    True
    >>> QuarantineLimit(share=0.1, share_from=100).exceeded(quarantined=99, of=99)
    False
    """

    rows: int = REFUSED_ROWS
    """Rows of one batch of any size."""

    share: float = 0.5
    """Fraction of the batch's rows, 0 to 1, in a batch of at least `share_from` rows."""

    share_from: int = 1_000

    def __post_init__(self) -> None:
        if self.rows < 0 or not 0 <= self.share <= 1 or self.share_from < 0:
            raise ValueError(
                f"{self} is not valid: expected rows >= 0, share from 0 to 1 and share_from >= 0"
            )

    def exceeded(self, quarantined: int, of: int) -> bool:
        """Return whether `quarantined` rows are too many in a batch of `of` rows."""
        return quarantined > self.rows or (of >= self.share_from and quarantined > of * self.share)

    def check(self, batch: str, quarantined: int, row_count: int) -> None:
        """Raise `TooManyRefused` for a batch beyond the limit; `batch` is its name for messages."""
        if not self.exceeded(quarantined, row_count):
            return
        raise TooManyRefused(
            f"{batch}: {quarantined:,} of its {row_count:,} rows were refused, and the limit"
            f" is {self.rows:,} rows or {self.share:.0%} of a batch of {self.share_from:,} or more."
            " Nothing of the batch was written and nothing is lost: it is in the checkpoint."
            " Correct what made the rows and restart; or, to quarantine them, start once with a"
            " larger `quarantine_limit` (the exposure job: with its option --refused-rows)."
        )
