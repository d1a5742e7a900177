"""The state with which a new checkpoint of a stream begins that has a published past.

The *frontier* is the newest window end that the stream has published. All windows up to it were
emitted, and are settled: the ids absorbed in them were lost with the checkpoint, so that a row
added to one of them could be counted twice. What is known beside it is who is held. Windows after
the frontier are computed anew from the source, with exact ids.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.exposure.errors import StateError
from spark_app.exposure.schema import (
    NEVER,
    STATE_ABSORBED,
    STATE_MERCHANTS,
    STATE_WINDOWS,
    TIMESTAMP,
    integers,
)
from spark_app.exposure.settings import Settings
from spark_app.exposure.state import GroupState


def resumed(settled_until_us: int | None, merchants: pa.Table, settings: Settings) -> GroupState:
    """Begin from a frontier (microseconds; None: nothing was published) and held merchants.

    `merchants` has the columns of `STATE_MERCHANTS`, in any order; who is not held is left out. A
    hold goes on from its `latest_end`, and from the frontier where that is later, because no
    window up to the frontier is emitted again. Raises StateError for a hold without a moment.
    """
    held = merchants.filter(merchants["held"]).sort_by("merchant_id").combine_chunks()
    latest = integers(held["latest_end"].cast(pa.int64()).fill_null(NEVER))
    latest = np.maximum(latest, NEVER if settled_until_us is None else settled_until_us)
    if (latest == NEVER).any():
        merchant = held["merchant_id"][int((latest == NEVER).argmax())]
        raise StateError(
            f"Merchant {merchant} is held, and nothing says since which window. Nothing was "
            "written; release the hold or correct the record of it, and start again."
        )
    # A hold that another producer set may be of any moment; windows end at their boundaries.
    latest = latest // settings.window_us * settings.window_us
    columns = [held["merchant_id"], held["held"], pc.cast(pa.array(latest), TIMESTAMP)]
    return GroupState(
        windows=STATE_WINDOWS.empty_table(),
        merchants=pa.Table.from_arrays(columns, schema=STATE_MERCHANTS),
        absorbed=STATE_ABSORBED.empty_table(),
        settled_until_us=settled_until_us,
    )
