"""What the exposure step remembers of one key group between two batches."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from spark_app.exposure.schema import STATE_ABSORBED, STATE_MERCHANTS, STATE_WINDOWS


@dataclass(frozen=True, slots=True)
class GroupState:
    """Three tables, the columns of which are in `schema`, and a moment; immutable.

    `absorbed` is by far the largest, and a step changes it in two ways only: it appends rows at the
    end, and rows of forgotten windows leave. So ids are stored in pieces, of which only the newest
    has to be written, and a step without rows can do without them.
    """

    windows: pa.Table
    merchants: pa.Table
    absorbed: pa.Table
    settled_until_us: int | None = None
    """Windows up to this end were published before this checkpoint began; see `resume`."""

    @classmethod
    def empty(cls) -> Self:
        """The state of a group that never saw a row, or has forgotten all of them."""
        return cls(
            STATE_WINDOWS.empty_table(), STATE_MERCHANTS.empty_table(), STATE_ABSORBED.empty_table()
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remember."""
        return not self.merchants.num_rows and self.settled_until_us is None
