"""One batch of one key group: `(state, rows, watermark) -> (state, output)`.

Pure: equal arguments give equal results on every machine and in every run, for any order and
chunking of the rows. It uses no Spark, files or clocks.
"""

import numpy as np
import pyarrow as pa

from holdfast.spark_app.exposure.absorb import absorb, fates
from holdfast.spark_app.exposure.book import Book
from holdfast.spark_app.exposure.emit import emit, forget
from holdfast.spark_app.exposure.output import StepOutput, decision_table, late_table, window_table
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.rows import in_row_order
from holdfast.spark_app.exposure.schema import NEVER, Int64s, check_rows, integers, one_chunk
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState

__all__ = ["StepOutput", "next_timer_us", "step"]


def step(
    state: GroupState,
    rows: pa.Table,
    watermark_us: int | None,
    policy: Policy,
    settings: Settings,
) -> tuple[GroupState, StepOutput]:
    """Absorb rows, emit and judge what is due at the watermark, forget what is past its cutoff.

    `rows` has the columns of `schema.ROWS`, for any number of merchants; none at a timer. Without
    rows, `state.absorbed` is not read: it may be empty.
    `watermark_us` is in microseconds since 1970, never less than in the call before; None before
    the first watermark. The given state is not modified.

    Raises RowsError, PolicyError (no default in force) or ExposureOverflow.
    """
    watermark, closed = NEVER, NEVER
    if watermark_us is not None:
        watermark, closed = watermark_us, watermark_us - settings.late_cutoff_us
    settled = NEVER if state.settled_until_us is None else state.settled_until_us
    if not rows.num_rows and not (_alarms(state, settings) <= watermark).any():
        return state, StepOutput.empty()

    table = check_rows(rows)
    merchant = one_chunk(table["merchant_id"]).dictionary_encode()
    book, number = Book.open(state, merchant.dictionary)
    batch = in_row_order(table, number[merchant.indices.to_numpy()])
    ends = batch.occurred // settings.window_us * settings.window_us + settings.window_us

    fate = fates(batch, ends, state.absorbed, closed, settled)
    changed, absorbed = absorb(book, batch, ends, fate)
    emissions = emit(book, changed, watermark, policy, settings)
    ids = forget(book, pa.concat_tables([state.absorbed, absorbed]), closed)

    output = StepOutput(
        windows=window_table(book.names, emissions, policy, settings.window_us),
        decisions=decision_table(book.names, emissions, policy, settings.window_us),
        late=late_table(batch, fate, watermark),
        absorbed=absorbed,
    )
    # Once settled windows are late by the ordinary rule, `settled` is no longer needed.
    return book.close(ids, settled if settled > closed else None), output


def next_timer_us(state: GroupState, watermark_us: int | None, settings: Settings) -> int | None:
    """Return the earliest time after the watermark at which something is emitted or forgotten.

    For the state that `step` returned at this watermark: until then, a step without rows changes
    nothing. None when the group waits for rows only.
    """
    alarms = _alarms(state, settings)
    if watermark_us is not None:
        alarms = alarms[alarms > watermark_us]
    return int(alarms.min()) if len(alarms) else None


def _alarms(state: GroupState, settings: Settings) -> Int64s:
    """Return every time at which a window is emitted or forgotten, a hold closes an empty window,
    or the settled windows are late."""
    end = integers(state.windows["window_end"])
    is_open = integers(state.windows["revision"]) == 0
    latest = integers(state.merchants["latest_end"].filter(state.merchants["held"]))
    moments = [end[is_open], end + settings.late_cutoff_us, latest + settings.window_us]
    if state.settled_until_us is not None:
        moments.append(np.array([state.settled_until_us + settings.late_cutoff_us]))
    return np.concatenate(moments)
