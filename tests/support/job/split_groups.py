"""One state distributed over key groups, row by row: what a savepoint does in Spark's tasks."""

from collections.abc import Sequence

import pyarrow as pa

from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator.groups import key_group


def split(state: GroupState, numbers: Sequence[int]) -> dict[int, GroupState]:
    """Return the state of each key group; `numbers` are those of `groups.group_numbers`.

    Every group has the settled frontier, also one without a merchant.
    """

    def of(table: pa.Table, number: int) -> pa.Table:
        owners = [key_group(name, numbers) for name in table["merchant_id"].to_pylist()]
        return table.filter(pa.array([owner == number for owner in owners], pa.bool_()))

    return {
        number: GroupState(
            windows=of(state.windows, number),
            merchants=of(state.merchants, number),
            absorbed=of(state.absorbed, number),
            settled_until_us=state.settled_until_us,
        )
        for number in numbers
    }
