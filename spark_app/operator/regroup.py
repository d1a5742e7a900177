"""The states of key groups as one, whatever groups it is distributed over next; pure.

The rules of the exposure step are per merchant, so the grouping affects no decision: a group is
only the unit that Spark stores and calls. Timers are not part of a state: the caller computes them
from each new state, with `exposure.step.next_timer_us`.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.schema import STATE_ABSORBED, one_chunk
from holdfast.spark_app.exposure.state import GroupState


def combined(states: Iterable[GroupState]) -> GroupState:
    """Return the states of key groups of one checkpoint, after the same batch, as one state.

    The ids of a group keep their order. The settled frontier is the latest one: a stream has one,
    and a group without it has already passed it.

    Raises StateError for a merchant that is in two of the states.
    """
    parts = list(states) or [GroupState.empty()]
    merchants = pa.concat_tables(part.merchants for part in parts).sort_by("merchant_id")
    names = one_chunk(merchants["merchant_id"])
    repeated = names[1:].filter(pc.equal(names[1:], names[:-1]))
    if len(repeated):
        raise StateError(
            f"Merchant {repeated[0]} is in the state of two key groups. Nothing was written;"
            " restore the checkpoint from a copy, or start from a new one and adopt it."
        )
    windows = pa.concat_tables(part.windows for part in parts)
    settled = [p.settled_until_us for p in parts if p.settled_until_us is not None]
    return GroupState(
        windows=windows.sort_by([("window_end", "ascending"), ("merchant_id", "ascending")]),
        merchants=merchants,
        absorbed=pa.concat_tables(part.absorbed for part in parts),
        settled_until_us=max(settled, default=None),
    )


def own_names(absorbed: pa.Table) -> pa.Table:
    """Return ids whose dictionary has the merchants of these ids only, not those of all groups."""
    place = absorbed.schema.get_field_index("merchant_id")
    names = one_chunk(absorbed["merchant_id"]).cast(pa.string()).dictionary_encode()
    return absorbed.set_column(place, STATE_ABSORBED.field(place), names)
