"""How much of a batch may be refused before the batch itself is taken for wrong.

A few bad rows are set aside and stop nothing. A batch that is bad as a whole is another thing: a
producer that changed its format, a job with a fault. To set all of it aside would look like
success.
"""

from dataclasses import dataclass

from sink.errors import TooManyRefused

REFUSED_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class QuarantineLimit:
    """The most refused rows with which a batch is written. Raises `ValueError` for no limit.

    >>> QuarantineLimit(rows=10).exceeded(quarantined=11, of=1_000_000)
    True
    >>> QuarantineLimit(share=0.1, share_from=100).exceeded(quarantined=99, of=99)
    False
    """

    rows: int = REFUSED_ROWS
    """Rows of one batch, whatever its size."""

    share: float = 0.5
    """Part of the batch's rows, 0 to 1, in a batch of at least `share_from` rows."""

    share_from: int = 1_000

    def __post_init__(self) -> None:
        if self.rows < 0 or not 0 <= self.share <= 1 or self.share_from < 0:
            raise ValueError(
                f"{self} cannot be: expected rows >= 0, share from 0 to 1 and share_from >= 0"
            )

    def exceeded(self, quarantined: int, of: int) -> bool:
        """Return whether so many refused rows are too many in a batch of `of` rows."""
        return quarantined > self.rows or (of >= self.share_from and quarantined > of * self.share)

    def check(self, batch: str, quarantined: int, row_count: int) -> None:
        """Raise `TooManyRefused` for a batch, named by `batch`, that is beyond the limit."""
        if not self.exceeded(quarantined, row_count):
            return
        raise TooManyRefused(
            f"{batch}: {quarantined:,} of its {row_count:,} rows were refused, and the limit"
            f" is {self.rows:,} rows or {self.share:.0%} of a batch of {self.share_from:,} or more."
            " Nothing of the batch was written and nothing is lost: it is in the checkpoint. Mend"
            " what made the rows and restart; or, if they are to be set aside, start once with a"
            " larger `quarantine_limit` (`holdfast job run --refused-rows`)."
        )
