"""What a checkpoint was begun with, kept inside it: settings, policies, and what was known before.

    holdfast.json          the job's settings (`shape`) and the place (`place`); another start is
                           refused
    holdfast-policy.json   the policies it ran with (`policy_history`)
    holdfast-initial.json  what the stream had published before (`initial`)

As long as the checkpoint has written nothing, each start writes the last two anew; so a crash
between them and the first batch leaves nothing to repair.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from sink.contract.exits import CommandError
from sink.foreach_batch import OutboxSink
from sink.transaction.lineage import require_recorded
from spark_app.checkpoint import initial, policy_history, shape
from spark_app.checkpoint.checkpoint_path import require_same_path
from spark_app.checkpoint.files import CheckpointFiles, Planned
from spark_app.checkpoint.initial import Past, newest_batch, read_past
from spark_app.checkpoint.policy_history import PolicyHistory
from spark_app.checkpoint.shape import Shape
from spark_app.checkpoint.source_log import forget_unplanned
from spark_app.exposure.policy import Policy
from spark_app.operator.job import Job

_Kept = TypeVar("_Kept")

_DONE = Past(recorded=True, initial=None)


def claim(spark: SparkSession, job: Job, sink: OutboxSink) -> Job:
    """Write down what a new checkpoint begins with, or compare it with what is there.

    Returns the job as it has to be started: its policy knows those before it, and `initial` is
    what its first batch begins from. Raises CommandError for a job that does not fit the
    checkpoint, UnadoptedCheckpoint for a checkpoint that does not fit the stream, and what
    `OutboxSink.read` raises; then nothing was started.
    """
    files = CheckpointFiles(spark, job.checkpoint)
    planned = files.planned()
    _claim_shape(files, Shape.of(job), planned)
    query_id = files.query_id()
    committed = files.committed()
    forget_unplanned(files)
    # A second batch is planned when the first one is recorded.
    done = committed is not None or (planned is not None and planned.batch_id > 0)
    past = _DONE if done else read_past(sink, job.stream, query_id)
    if not past.recorded:
        history = PolicyHistory.begin(job.policy)
        files.write(policy_history.FILE, history.to_json())
        files.write(initial.FILE, initial.to_json(past.initial))
        return replace(job, policy=history.policy, initial=past.initial)
    return replace(
        job,
        policy=_policy(files, job.policy, planned),
        # Spark takes it in the first batch alone, and may go on with or without it.
        initial=None if done else _kept(files, initial.FILE, initial.VERSION, initial.from_json),
    )


def require_ledger(spark: SparkSession, job: Job, sink: OutboxSink) -> None:
    """Return where the ledger has every batch that the checkpoint has finished.

    The sink itself can ask this only of a checkpoint on a local path, and of a query that the
    ledger knows: another query may have run before it got a sink, the job never does. Raises
    `LedgerBehind` and what `OutboxSink.read` raises.
    """
    files = CheckpointFiles(spark, job.checkpoint)
    # The checkpoint first: what another driver finishes meanwhile, the ledger has before.
    committed = files.committed()
    if committed is not None:
        recorded = newest_batch(sink, job.stream, files.query_id())
        require_recorded(job.stream, job.checkpoint, committed, recorded)


def _claim_shape(files: CheckpointFiles, wanted: Shape, planned: Planned | None) -> None:
    if planned is None:
        files.write(shape.FILE, wanted.to_json(files.location))
        return
    kept = files.read_json(shape.FILE, shape.VERSION)
    if kept is None:
        raise CommandError(
            f"{files.checkpoint} holds a checkpoint that this job did not begin (it has no"
            f" {shape.FILE}). Nothing was read or written; name another directory with"
            " --checkpoint."
        )
    require_same_path(files, kept)
    wanted.require(kept, files.checkpoint)


def _policy(files: CheckpointFiles, policy: Policy, planned: Planned | None) -> Policy:
    kept = _kept(files, policy_history.FILE, policy_history.VERSION, PolicyHistory.from_json)
    history = kept.followed_by(policy, planned.watermark_us if planned else 0)
    if history is not kept:
        files.write(policy_history.FILE, history.to_json())
    return history.policy


def _kept(
    files: CheckpointFiles, name: str, version: int, parse: Callable[[Mapping[str, Any]], _Kept]
) -> _Kept:
    """Return what a checkpoint that has written a batch keeps in one of the job's files."""
    kept = files.read_json(name, version)
    if kept is None:
        raise files.missing(name)
    try:
        return parse(kept)
    except (KeyError, TypeError, ValueError) as error:
        raise files.damaged(name) from error
