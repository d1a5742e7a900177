"""The output tables of a step."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from holdfast.spark_app.exposure.absorb import Fate, Fates
from holdfast.spark_app.exposure.emit import Emissions
from holdfast.spark_app.exposure.judge import BLOCK, NOTHING
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.rows import Batch
from holdfast.spark_app.exposure.schema import (
    DECISIONS,
    LATE,
    NEVER,
    STATE_ABSORBED,
    TIMESTAMP,
    WINDOWS,
    moments,
)

_REASONS = pa.array([fate.name.lower() for fate in Fate])
_ACTIONS = pa.array(["release", "block"])


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The tables that a step publishes (`schema.WINDOWS`, `DECISIONS`, `LATE`), and its new ids."""

    windows: pa.Table
    decisions: pa.Table
    late: pa.Table
    absorbed: pa.Table
    """The ids that the step added to the state: `schema.STATE_ABSORBED`."""

    @classmethod
    def empty(cls) -> Self:
        """Return output without rows."""
        return cls(
            windows=WINDOWS.empty_table(),
            decisions=DECISIONS.empty_table(),
            late=LATE.empty_table(),
            absorbed=STATE_ABSORBED.empty_table(),
        )


def window_table(names: pa.Array, emissions: Emissions, policy: Policy, window_us: int) -> pa.Table:
    """Return every emission, as `schema.WINDOWS`."""
    windows = emissions.windows
    if not len(windows.end):
        return WINDOWS.empty_table()
    merchant = names.take(pa.array(windows.owner))
    columns = [
        merchant,
        moments(windows.end - window_us),
        moments(windows.end),
        pa.array(windows.revision.astype(np.int32)),
        pa.array(windows.exposure),
        policy.currencies(merchant),
        policy.versions_at(windows.end),
    ]
    return pa.Table.from_arrays(columns, schema=WINDOWS)


def decision_table(
    names: pa.Array, emissions: Emissions, policy: Policy, window_us: int
) -> pa.Table:
    """Return the emissions that block or release, as `schema.DECISIONS`."""
    decided = np.flatnonzero(emissions.action != NOTHING)
    if not len(decided):
        return DECISIONS.empty_table()
    windows, blocks = emissions.windows.where(decided), emissions.action[decided] == BLOCK
    merchant = names.take(pa.array(windows.owner))
    limit, release_level = policy.limits(merchant, windows.end)
    ordinal = np.where(blocks, windows.blocks, windows.releases)
    columns = [
        merchant,
        _ACTIONS.take(pa.array(blocks.astype(np.int8))),
        moments(windows.end - window_us),
        moments(windows.end),
        pa.array(windows.revision.astype(np.int32)),
        pa.array(ordinal.astype(np.int32)),
        pa.array(windows.exposure),
        pa.array(limit),
        pa.array(release_level),
        policy.currencies(merchant),
        policy.versions_at(windows.end),
    ]
    return pa.Table.from_arrays(columns, schema=DECISIONS)


def late_table(batch: Batch, fate: Fates, watermark_us: int) -> pa.Table:
    """Return the rows that were not applied, as `schema.LATE`."""
    refused = np.flatnonzero(fate != Fate.APPLIED)
    if not len(refused):
        return LATE.empty_table()
    rows = batch.table.take(pa.array(batch.order[refused]))
    watermark = None if watermark_us == NEVER else watermark_us
    columns = {
        "reason": _REASONS.take(pa.array(fate[refused])),
        "watermark": pa.repeat(pa.scalar(watermark, TIMESTAMP), len(refused)),
    }
    return pa.Table.from_arrays(
        [columns.get(field.name) or rows[field.name] for field in LATE], schema=LATE
    )
