"""The state of one key group between two batches, and the one with which a checkpoint begins."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.schema import (
    NEVER,
    STATE_ABSORBED,
    STATE_MERCHANTS,
    STATE_WINDOWS,
    TIMESTAMP,
    integers,
)
from holdfast.spark_app.exposure.settings import Settings


@dataclass(frozen=True, slots=True)
class GroupState:
    """Three tables, with the columns of `schema`, and a time; immutable.

    `absorbed` is by far the largest, and a step changes it in two ways only: it appends rows at the
    end, and rows of forgotten windows leave. So ids are stored in segments, of which
    only the newest is written, and a step without rows does without them.
    """

    windows: pa.Table
    merchants: pa.Table
    absorbed: pa.Table
    settled_until_us: int | None = None
    """Windows up to this end were published before this checkpoint began; see `resumed`."""

    @classmethod
    def empty(cls) -> Self:
        """Return the state of a group without rows, or after all of them are forgotten."""
        return cls(
            STATE_WINDOWS.empty_table(), STATE_MERCHANTS.empty_table(), STATE_ABSORBED.empty_table()
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not self.merchants.num_rows and self.settled_until_us is None


def resumed(settled_until_us: int | None, merchants: pa.Table, settings: Settings) -> GroupState:
    """Return the state with which a new checkpoint of a stream with a published past begins.

    The frontier `settled_until_us` (microseconds; None: nothing was published) is the newest window
    end that the stream has published. All windows up to it were emitted and are settled: the event
    ids absorbed in them were lost with the checkpoint, so a row added to one of them could be
    counted twice. Windows after the frontier are recomputed from the source, with exact ids.

    `merchants` has the columns of `STATE_MERCHANTS`, in any order; merchants without a hold are
    ignored. A hold continues from its `latest_end`, or from the frontier where that is later,
    because no window up to the frontier is emitted again. Raises StateError for a hold without
    either.
    """
    held = merchants.filter(merchants["held"]).sort_by("merchant_id").combine_chunks()
    latest = integers(held["latest_end"].cast(pa.int64()).fill_null(NEVER))
    latest = np.maximum(latest, NEVER if settled_until_us is None else settled_until_us)
    if (latest == NEVER).any():
        merchant = held["merchant_id"][int((latest == NEVER).argmax())]
        raise StateError(
            f"Merchant {merchant} is held, and its latest window is not recorded. Nothing was "
            "written; release the hold or correct the record of it, and start again."
        )
    # A hold that another producer set may have any time; windows end at their boundaries.
    latest = latest // settings.window_us * settings.window_us
    columns = [held["merchant_id"], held["held"], pc.cast(pa.array(latest), TIMESTAMP)]
    return GroupState(
        windows=STATE_WINDOWS.empty_table(),
        merchants=pa.Table.from_arrays(columns, schema=STATE_MERCHANTS),
        absorbed=STATE_ABSORBED.empty_table(),
        settled_until_us=settled_until_us,
    )
