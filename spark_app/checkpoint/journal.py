"""What a checkpoint was begun with, stored in it: settings, policies, and initial state.

    holdfast.json          the job's settings (`shape`) and the path; a start with different ones
                           is refused. Its sources: a start may add some
    holdfast-policy.json   the policies it ran with (`policy_history`)
    holdfast-initial.json  what the stream had published before (`initial`)

A checkpoint that begins with a savepoint names it instead of the last one (`origin`).

Until the checkpoint has written a batch, each start rewrites the last two, so a crash between them
and the first batch leaves nothing to repair.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from holdfast.sink.contract.checkpoint import local_folder
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.shell import shell_word
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.sink.transaction.lineage import renamed, require_recorded
from holdfast.spark_app.checkpoint import initial, policy_history, shape
from holdfast.spark_app.checkpoint.checksums import mend
from holdfast.spark_app.checkpoint.files import NO_OFFSET, RESTORING, CheckpointFiles, Planned
from holdfast.spark_app.checkpoint.initial import (
    Past,
    newer_query,
    newest_batch,
    other_stream,
    published_until,
    read_past,
)
from holdfast.spark_app.checkpoint.origin import require_begun
from holdfast.spark_app.checkpoint.policy_history import PolicyHistory
from holdfast.spark_app.checkpoint.repeats import Repeats
from holdfast.spark_app.checkpoint.shape import FILE, LOCATION, Shape
from holdfast.spark_app.checkpoint.topic_positions import require_records
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input import ticks
from holdfast.spark_app.input.broker import Broker
from holdfast.spark_app.input.sources import Files, Kafka, Source, Ticks, from_json
from holdfast.spark_app.operator.job import Job

_Kept = TypeVar("_Kept")

_DONE = Past(recorded=True, initial=None)


def require_fit(files: CheckpointFiles, job: Job, sink: OutboxSink) -> None:
    """Raise CommandError for a job that does not fit its checkpoint, by its settings or policy.

    A start that is refused must not fence the driver that runs, so these are compared before the
    stream is taken. Nothing is changed but damaged checksums of intact files. Also raises what
    `OutboxSink.read` raises.
    """
    _mend_checksums(files)
    _require_complete(files)
    planned = files.planned()
    if planned is not None:
        _sources(files, job, _record(files, job))
        if _is_done(planned, files.committed()):
            _history(files, job, planned, sink)


def take(files: CheckpointFiles, sink: OutboxSink) -> bool:
    """Take the stream before anything of its checkpoint is decided; return whether it is adopted.

    Raises as `OutboxSink.claim`.
    """
    repeats = Repeats.kept(files)
    return sink.claim(files.query_id(), repeated=repeats.rest if repeats else None)


def claim(files: CheckpointFiles, job: Job, sink: OutboxSink, broker: Broker | None = None) -> Job:
    """Record what a new checkpoint begins with, or compare it with the record.

    Call it when the stream is taken: until then, another driver may change what is read.
    `broker` is that of the job's topics. Returns the job to start: its policy has its history,
    `sources` are in Spark's order, and `initial` is the initial state of its first batch. Raises
    CommandError for a job that does not fit the checkpoint, UnadoptedCheckpoint for a checkpoint
    that does not fit the stream, KafkaFault, and what `OutboxSink.read` raises; then nothing was
    started.
    """
    _require_complete(files)
    planned = files.planned()
    kept = _claim_shape(files, job, planned)
    job = replace(job, sources=_sources(files, job, kept))
    query_id = files.query_id()
    committed = files.committed()
    if planned is not None and planned.batch_id - 1 in files.batches("offsets"):
        # Spark reads it too.
        files.check(f"offsets/{planned.batch_id - 1}")
    forget_unplanned(files, job.sources)
    if drop_orphan(files, job.stream, sink):
        return claim(files, job, sink, broker)
    if broker is not None and job.connection is not None:
        accept = job.connection.accepts_gap
        read = require_records(files, job.sources, broker, planned, committed, accept=accept)
        job.connection.begun()
        job = replace(job, sources=read)
    done = _is_done(planned, committed)
    past = _DONE if done else read_past(sink, job.stream, query_id)
    if not past.recorded:
        history = PolicyHistory.begin(job.policy)
        files.write(policy_history.FILE, history.to_json())
        files.write(initial.FILE, initial.to_json(past.initial))
        job = replace(job, policy=history.policy, initial=past.initial)
    else:
        job = replace(
            job,
            policy=_policy(files, job, planned, sink),
            # Spark reads it in the first batch only.
            initial=None
            if done
            else _kept(files, initial.FILE, initial.VERSION, initial.from_json),
        )
    if kept is not None:
        _keep_sources(files, kept, job.sources)
    if Ticks() in job.sources:
        _prepare_ticks(files, done=planned is None or planned.batch_id == committed)
    return job


def _mend_checksums(files: CheckpointFiles) -> None:
    """Write damaged checksum files of intact files again: Spark would refuse what they are of."""
    folder = local_folder(files.location)
    for place in files.owning(partial(mend, folder)) if folder is not None else ():
        message = f"holdfast: wrote the damaged checksum file {place} again; its file is intact"
        print(message, file=sys.stderr, flush=True)  # noqa: T201 - the command's own report


def require_ledger(files: CheckpointFiles, job: Job, sink: OutboxSink) -> None:
    """Raise `LedgerBehind` unless the ledger has every batch that the checkpoint has committed.

    `UnadoptedCheckpoint` names another stream that has them.
    The sink itself can check this only for a query that the ledger knows: another query may have
    run without the sink before, the job never does.
    Raises CommandError for a checkpoint to which the stream came back: its state does not have what
    another query has published since. Also raises what `OutboxSink.read` raises.
    """
    # The checkpoint first: a batch of another driver is in the ledger before it is committed there.
    committed = files.committed()
    if committed is not None:
        query_id = files.query_id()
        recorded = newest_batch(sink, job.stream, query_id)
        if recorded is None and (other := other_stream(sink, job.stream, query_id)):
            raise renamed(job.stream, query_id, other)
        require_recorded(job.stream, job.checkpoint, committed, recorded)
        _require_newest_query(sink, job, query_id)


def _require_newest_query(sink: OutboxSink, job: Job, query_id: UUID) -> None:
    newer = newer_query(sink, job.stream, query_id)
    if newer is not None:
        raise CommandError(
            f"the stream {job.stream} continued with query {newer[0]}, up to its batch {newer[1]},"
            f" after the newest batch of the checkpoint {job.checkpoint} (query {query_id}), whose"
            " state does not have what was published since. Nothing was read or written; continue"
            " with the checkpoint of that query, or begin a new one, which the stream then has to"
            " adopt (`holdfast stream adopt`): it continues from the published windows and holds.",
            code="checkpoint_outdated",
        )


def _claim_shape(
    files: CheckpointFiles, job: Job, planned: Planned | None
) -> dict[str, Any] | None:
    """Return the record that a job fits; None for a new checkpoint, which gets one."""
    shape_of_job = Shape.of(job)
    if planned is None:
        _forget_other_topics(files, shape_of_job.sources)
        files.write(shape.FILE, shape_of_job.to_json(files.location))
        return None
    return _record(files, job)


def _is_done(planned: Planned | None, committed: int | None) -> bool:
    """Return whether the first batch is done: Spark plans a second one only afterwards."""
    return committed is not None or (planned is not None and planned.batch_id > 0)


def _require_complete(files: CheckpointFiles) -> None:
    """Raise CommandError for a checkpoint that a savepoint or a restore has half made."""
    require_begun(files)
    if files.read(RESTORING) is not None:
        raise CommandError(
            f"a restore of the checkpoint {files.checkpoint} was interrupted. Nothing was read or"
            " written; `holdfast job checkpoints verify` names the command that finishes it.",
            code="restore_interrupted",
        )


def _record(files: CheckpointFiles, job: Job) -> dict[str, Any]:
    """Return the record of a checkpoint with a planned batch, which the job fits."""
    kept = files.read_json(shape.FILE, shape.VERSION)
    if kept is None:
        raise CommandError(
            f"{files.checkpoint} holds a checkpoint that this job did not begin (it has no"
            f" {shape.FILE}). Nothing was read or written; name another directory with"
            " --checkpoint.",
            code="foreign_checkpoint",
        )
    require_same_path(files, kept)
    Shape.of(job).require(kept, files.checkpoint)
    return kept


def _forget_other_topics(files: CheckpointFiles, sources: Sequence[Source]) -> None:
    """Remove where a topic began for a start that ended before its first batch was planned.

    One with the same source continues from there: no record since that start is skipped.
    """
    try:
        kept = (files.read_json(shape.FILE, shape.VERSION) or {}).get(shape.SOURCES, [])
    except CommandError:
        kept = []  # it is written again
    for number, source in enumerate(sources):
        if isinstance(source, Kafka) and not _begins_as(source, kept[number : number + 1]):
            files.remove_folder(f"sources/{number}")


def _begins_as(source: Kafka, kept: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a record is of the same topics, from the same place on."""
    try:
        (known,) = map(from_json, kept)
    except (KeyError, TypeError, ValueError):
        return False
    if not isinstance(known, Kafka) or known.place != source.place:
        return False
    now = dict(source.topic_ids)
    return (known.cluster_id, known.starting) == (source.cluster_id, source.starting) and all(
        now.get(name) == topic_id for name, topic_id in known.topic_ids
    )


def _sources(
    files: CheckpointFiles, job: Job, kept: Mapping[str, Any] | None
) -> tuple[Source, ...]:
    if kept is None:
        return job.sources or job.declared
    try:
        return shape.sources_of(kept, job.sources or job.declared, files.checkpoint)
    except (KeyError, TypeError, ValueError) as error:
        raise files.damaged(shape.FILE) from error


def _keep_sources(
    files: CheckpointFiles, kept: Mapping[str, Any], sources: tuple[Source, ...]
) -> None:
    """Record sources that this start adds: first that they belong to the checkpoint from now on.

    A start that repeats this after a crash completes it, and one without them is refused.
    """
    record = shape.grown(kept, files.location, sources)
    if record is not None:
        files.write(shape.FILE, record)
    failpoint("K1")
    files.plan_sources(len(sources))


def _prepare_ticks(files: CheckpointFiles, *, done: bool) -> None:
    """Make the folder of the ticks; when every planned batch is done, none in it is needed."""
    files.make_folder(ticks.FOLDER)
    for name in files.names(ticks.FOLDER) if done else ():
        files.remove(f"{ticks.FOLDER}/{name}")


def _policy(files: CheckpointFiles, job: Job, planned: Planned | None, sink: OutboxSink) -> Policy:
    """Return the job's policy with its predecessors; a new one may not change what is decided.

    A checkpoint that went back is behind the windows that the stream has published, and behind the
    policies that were in force for them.
    """
    history, is_new = _history(files, job, planned, sink)
    if is_new:
        files.write(policy_history.FILE, history.to_json())
    return history.policy


def _history(
    files: CheckpointFiles, job: Job, planned: Planned | None, sink: OutboxSink
) -> tuple[PolicyHistory, bool]:
    """Return the history with the job's policy, and whether the checkpoint has it otherwise."""
    kept = _kept(files, policy_history.FILE, policy_history.VERSION, PolicyHistory.from_json)
    decided_us = max(planned.watermark_us if planned else 0, kept.reached_us)
    if kept.followed_by(job.policy, decided_us) is kept:
        return kept, False
    decided_us = max(decided_us, published_until(sink, job.stream))
    return kept.followed_by(job.policy, decided_us), True


def _kept(
    files: CheckpointFiles, name: str, version: int, parse: Callable[[Mapping[str, Any]], _Kept]
) -> _Kept:
    """Return one of the job's files in a checkpoint that has written a batch."""
    kept = files.read_json(name, version)
    if kept is None:
        raise files.missing(name)
    try:
        return parse(kept)
    except (KeyError, TypeError, ValueError) as error:
        raise files.damaged(name) from error


# A checkpoint must stay at the path where it was begun.
#
# Spark writes that path into the state and reads a part of the state from it, wherever the rest was
# moved. A start at another path would fail, and leave a new folder at the old one.


def require_same_path(files: CheckpointFiles, kept: Mapping[str, Any]) -> None:
    """Raise CommandError unless a checkpoint is at the path where it was begun.

    Links are not resolved, as in Spark. `kept` is the content of `shape.FILE`.
    """
    begun_at = kept.get(LOCATION)
    if begun_at is None:
        raise files.damaged(FILE)
    if begun_at == files.location:
        return
    origin = str(begun_at).removeprefix("file:")
    raise CommandError(
        f"{files.checkpoint} was begun in another place, {shell_word(origin)}, and Spark reads a"
        " part of its state from there. Nothing was read or written; move it back there, unless it"
        f" still is, and start with --checkpoint {shell_word(origin)}.",
        code="checkpoint_moved",
    )


# Spark's log of the files of each batch, cut back to the planned batches.
#
# Spark's file source first logs the files of the next batch (`sources/0/N`; the number of another
# source instead of 0), and then Spark plans the batch (`offsets/N`). If a JVM dies between the two,
# the log has files that belong to no batch; the next start would give its first batch these and a
# full batch more. Nothing would be lost, but the batches would differ from those of an
# uninterrupted run, and with them which events are late. So a start removes such files from the
# log; Spark finds them in the directory again.

_ENTRY = re.compile(r"([0-9]+)(\.compact)?")


def forget_unplanned(files: CheckpointFiles, sources: Sequence[Source]) -> None:
    """Remove the log entries of batches that were never planned; call before the query starts.

    Raises CommandError where the checksum of one that Spark reads does not match.
    `sources/N` of another kind is not such a log: of a topic, it has where it began.
    """
    planned = files.planned()
    for number, source in enumerate(sources):
        if isinstance(source, Files | Ticks):
            _cut(files, f"sources/{number}", planned and planned.sources[number : number + 1])


def drop_orphan(files: CheckpointFiles, stream: str, sink: OutboxSink) -> bool:
    """Remove the newest plan if the log has lost its files and nobody has written its batch.

    Returns whether there was one.

    A driver that was replaced can still plan a batch whose entry `forget_unplanned` of the newer
    one has found unplanned and removes. It is fenced and writes no batch; Spark would fail at each
    start. Raises CommandError where the ledger has the batch, and what `OutboxSink.read` raises.
    """
    planned = files.planned()
    if planned is None or planned.batch_id == files.committed():
        return False
    lost = next(_lost_entries(files, planned), None)
    if lost is None:
        return False
    recorded = newest_batch(sink, stream, files.query_id())
    if recorded is not None and recorded >= planned.batch_id:
        raise files.missing(lost)
    files.remove(f"offsets/{planned.batch_id}")
    message = (
        f"holdfast: dropped the plan of batch {planned.batch_id} by a driver that was replaced: it"
        " was never written, and its files are planned again"
    )
    print(message, file=sys.stderr, flush=True)  # noqa: T201 - the command's own report
    return True


def _lost_entries(files: CheckpointFiles, planned: Planned) -> Iterator[str]:
    """Yield the log entries up to which a plan reads, where they are gone."""
    for number, source in enumerate(planned.sources):
        folder, position = f"sources/{number}", _position((source,))
        if position is None or position < 0:
            continue
        entries = filter(None, map(_ENTRY.fullmatch, files.names(folder)))
        if not any(int(entry[1]) == position for entry in entries):
            yield f"{folder}/{position}"


def _cut(files: CheckpointFiles, folder: str, planned: tuple[str, ...] | None) -> None:
    position = _position(planned)
    if position is None:
        return
    kept: dict[str, re.Match[str]] = {}
    for name in files.names(folder):
        entry = _ENTRY.fullmatch(name)
        if entry and int(entry[1]) > position:
            files.remove(f"{folder}/{name}")
        elif entry:
            kept[name] = entry
    start = max((int(entry[1]) for entry in kept.values() if entry[2]), default=0)
    for name, entry in kept.items():
        # Spark reads these. It would read a file again whose name was changed by a flipped bit.
        if int(entry[1]) >= start:
            files.check(f"{folder}/{name}")


def _position(planned: tuple[str, ...] | None) -> int | None:
    """Return the last log entry of a planned batch, -1 for none; None for an unknown format."""
    if planned in (None, (), (NO_OFFSET,)):
        return -1
    try:
        return int(json.loads(planned[0])["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None
