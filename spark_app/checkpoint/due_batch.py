"""The batch without rows that a moved watermark calls for, where Spark does not know of it.

Where a batch has moved the watermark and no source has new data, Spark runs a batch without rows,
in which the windows that have ended are emitted. It decides so by the plan of the batch before,
which it has in memory alone. A query that starts after that batch's commit would wait for the next
event instead, and the decisions with it. So that batch is planned here, as Spark would plan it, and
Spark runs what is planned when it starts.

With new data it is not due: the next batch has the same watermark, and reads the data as well.
"""

import json
import time

from holdfast.spark_app.checkpoint.files import CheckpointFiles


def is_due(files: CheckpointFiles) -> bool:
    """Return whether a batch without rows is due, unless a source has new data.

    Raises CommandError for a damaged plan or commit.
    """
    return _next(files) is not None


def plan_due(files: CheckpointFiles) -> int | None:
    """Plan the batch without rows that is due, for the next start; return its id, None for none.

    Call it when no query runs and no source has new data. Raises as `is_due`, and OSError where
    another driver has planned a batch since.
    """
    planned = _next(files)
    if planned is None:
        return None
    batch_id, text = planned
    files.create(f"offsets/{batch_id}", text)
    return batch_id


def due_plan(plan: str, commit: str, now_ms: int) -> str | None:
    """Return the plan of the batch without rows after a committed one; None where none is due.

    `plan` is the text of `offsets/N`, `commit` that of `commits/N`, and `now_ms` becomes the
    timestamp of the batch, in milliseconds since 1970. Raises IndexError, KeyError, TypeError or
    ValueError for text in another format.

    >>> commit = 'v2\\n{"nextBatchWatermarkMs":970000}'
    >>> print(due_plan('v1\\n{"batchWatermarkMs":0}\\n{"logOffset":0}', commit, 1000000))
    v1
    {"batchWatermarkMs":970000,"batchTimestampMs":1000000}
    {"logOffset":0}
    """
    header, described, *sources = plan.splitlines()
    planned = json.loads(described)
    watermark_ms = int(json.loads(commit.splitlines()[1])["nextBatchWatermarkMs"])
    if watermark_ms <= int(planned["batchWatermarkMs"]):
        return None
    planned |= {"batchWatermarkMs": watermark_ms, "batchTimestampMs": now_ms}
    return "\n".join([header, json.dumps(planned, separators=(",", ":")), *sources])


def _next(files: CheckpointFiles) -> tuple[int, str] | None:
    newest, committed = max(files.batches("offsets"), default=None), files.committed()
    if newest is None or newest != committed:
        return None
    plan, commit = f"offsets/{newest}", f"commits/{newest}"
    try:
        text = due_plan(
            files.read(plan) or "", files.read(commit) or "", time.time_ns() // 1_000_000
        )
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise files.damaged(f"{plan} or {commit}") from error
    return None if text is None else (newest + 1, text)
