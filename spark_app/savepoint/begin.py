"""Begins a new checkpoint with the state of a savepoint.

Spark reads an initial state in the first batch of a checkpoint only. So the checkpoint gets the
plan of a batch 0 without rows at the watermark of the savepoint's batch N; Spark runs it with the
state of the savepoint as its initial state. Then batch 0 gets N's offsets, the files already read,
and the watermark of batch N+1. Batch 1 is what N+1 would have been.

    record_origin      holdfast-savepoint.json: the origin, and the checkpoint's query id
    plan_no_rows       metadata, offsets/0: no source has an offset
    load_state         state, commits/0: by Spark
    continue_sources   policies, sources/i/0, offsets/0, commits/0; the batches since (`repeated`)
    complete           holdfast.json: the checkpoint is complete
    adopt              the ledger: the stream adopts the query id by the savepoint's proof

Each step may run again. After a crash before `complete`, the same command runs all of them, after
it `adopt`.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID, uuid4

from pyspark.sql import DataFrame, SparkSession

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.errors import UnadoptedCheckpoint
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.sink.transaction.continuation import Continuation
from holdfast.spark_app.checkpoint import origin, policy_history, repeats, shape
from holdfast.spark_app.checkpoint.files import NO_OFFSET, CheckpointFiles
from holdfast.spark_app.checkpoint.initial import (
    newer_query,
    newest_batch,
    published_until,
    read_past,
)
from holdfast.spark_app.checkpoint.origin import Origin, unbound
from holdfast.spark_app.checkpoint.policy_history import PolicyHistory
from holdfast.spark_app.checkpoint.shape import Shape
from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.source import holds
from holdfast.spark_app.input.sources import Files, Kafka, Source, SourcesDiffer, followed_by
from holdfast.spark_app.operator.job import MODE, Job, decide
from holdfast.spark_app.operator.pack import PACKED_DDL
from holdfast.spark_app.savepoint import manifest, read_files, tables
from holdfast.spark_app.savepoint.folder import SavepointFolder
from holdfast.spark_app.savepoint.manifest import Manifest
from holdfast.spark_app.savepoint.repeated import Past, RepeatedPlans, read_since
from holdfast.spark_app.savepoint.write import sources_name

BYTES_PER_BATCH: Final = 64 << 20
"""Of the initial state, that Spark passes to Python together."""

_HEADER: Final = "v1"
_POLL_SECONDS: Final = 0.25


def with_key_groups(spark: SparkSession, job: Job) -> Job:
    """Return the job with a number of key groups: its own, else its checkpoint's or savepoint's.

    Raises CommandError where a new checkpoint has no savepoint of that name to begin with.
    """
    if job.key_groups is not None:
        return job
    try:
        kept = CheckpointFiles(spark, job.checkpoint).read_json(shape.FILE, shape.VERSION)
    except CommandError:
        # What is wrong with it is said where the whole file is compared, if it matters.
        return job
    if kept is None and job.savepoint is not None:
        kept = SavepointFolder(spark, job.savepoint).manifest().begun
    groups = (kept or {}).get("key_groups")
    return replace(job, key_groups=groups) if isinstance(groups, int) else job


def begin(
    spark: SparkSession,
    files: CheckpointFiles,
    job: Job,
    sink: OutboxSink,
    savepoint: str,
    stopped: Callable[[], bool],
) -> bool:
    """Make the job's checkpoint from a savepoint, unless it was made from it before.

    It takes the stream before it changes the checkpoint: two that begin one do not mix their files.
    Returns False when `stopped` ended it before the checkpoint was complete. Raises CommandError
    for a savepoint or a checkpoint that does not fit, `UnadoptedCheckpoint` where the proof fails;
    then nothing was changed.
    """
    folder = SavepointFolder(spark, savepoint)
    begun, settings = before = Origin.read(files), files.read(shape.FILE)
    complete = begun is not None and settings is not None
    if complete and begun is not None and not folder.exists and _goes_on(sink, job, begun):
        # A restart with the same command, after the savepoint was removed.
        _require_same(files, begun.location == folder.location, begun, savepoint)
        _adopt(files, job, sink, begun.proof, UUID(begun.query_id))
        return True
    found = folder.manifest()
    if begun is None:
        _require_new(files, savepoint)
    else:
        _require_same(files, begun.savepoint_id == found.savepoint_id, begun, savepoint)
    query_id = UUID(begun.query_id) if begun else uuid4()
    if not complete:
        history, sources = _require(folder, found, job, sink)
        sink.claim()
        if (Origin.read(files), files.read(shape.FILE)) != before:
            # Another driver has begun it until now.
            return begin(spark, files, job, sink, savepoint, stopped)
        if begun is None:
            _require_new(files, savepoint)
        job = replace(job, sources=sources)
        made = Origin(
            savepoint_id=found.savepoint_id,
            location=folder.location,
            query_id=str(query_id),
            previous_query_id=found.query_id,
            previous_batch_id=found.batch_id,
            previous_digest=found.digest,
        )
        beginning = _Beginning(spark, job, files, folder, found)
        if not beginning.run(made, history, read_since(sink, found), stopped):
            return False
    adopted = newest_batch(sink, job.stream, query_id)
    if adopted is None:
        # The old job may have published more since the policies were compared.
        _history(folder, found, job, published_until(sink, job.stream))
        _report(found.began(job.checkpoint, folder.checkpoint, job.group_count))
    _adopt(files, job, sink, found.proof, query_id)
    if adopted in (None, 0):
        # It may have written more batches since; from the adoption on it writes none.
        job = replace(job, sources=_sources(folder, found, job))
        _Beginning(spark, job, files, folder, found).repeat(read_since(sink, found))
    return True


def _goes_on(sink: OutboxSink, job: Job, begun: Origin) -> bool:
    return newest_batch(sink, job.stream, UUID(begun.query_id)) is not None


def _require_new(files: CheckpointFiles, savepoint: str) -> None:
    if holds(savepoint, files.checkpoint):
        raise CommandError(
            f"the checkpoint {files.checkpoint} lies in the savepoint {savepoint}, which is never"
            " changed. Nothing was changed; name a directory beside it with --checkpoint.",
            ExitCode.USAGE,
            code="checkpoint_in_savepoint",
        )
    if not unbound(files):
        raise CommandError(
            f"--from-savepoint makes a new checkpoint, and {files.checkpoint} holds something"
            " else already. Nothing was changed; name a new directory with --checkpoint, or leave"
            " out --from-savepoint to continue with this one.",
            ExitCode.USAGE,
            code="checkpoint_not_new",
        )


def _require_same(files: CheckpointFiles, same: bool, begun: Origin, savepoint: str) -> None:
    if not same:
        raise CommandError(
            f"the checkpoint {files.checkpoint} was made from another savepoint"
            f" ({begun.location}, {begun.savepoint_id}) than {savepoint} is. Nothing was changed;"
            " name a new directory with --checkpoint.",
            ExitCode.USAGE,
            code="checkpoint_of_other_savepoint",
        )


def _require(
    folder: SavepointFolder, found: Manifest, job: Job, sink: OutboxSink
) -> tuple[PolicyHistory, tuple[Source, ...]]:
    """Check everything that needs no change; return the policies, and the sources in order."""
    found.require_readable(folder.checkpoint)
    if found.offsets[0] != _HEADER:
        raise CommandError(
            f"Spark's plan in the savepoint {folder.checkpoint} has the unknown version"
            f" {found.offsets[0]}. Nothing was changed; use the Spark that wrote it"
            f" ({found.spark}).",
            code="savepoint_version_mismatch",
        )
    differences = differing(Shape.of(job), found)
    if differences:
        raise CommandError(
            f"the savepoint {folder.checkpoint} is of a job with other settings:"
            f" {'; '.join(differences)}. Its state would not fit. Nothing was changed; start with"
            " the settings as they were. Key groups, partitions and the checkpoint may be others.",
            code="savepoint_settings_differ",
        )
    folder.verify(found.files)
    sources = _sources(folder, found, job)
    frontier_us = _require_ledger(folder, found, sink)
    return _history(folder, found, job, frontier_us), sources


def differing(wanted: Shape, found: Manifest) -> list[str]:
    """Describe the settings that a savepoint fixes and the job has otherwise."""
    free = {"key_groups", "partitions"}
    kept = {**found.begun, **{name: getattr(wanted, name) for name in free}}
    return wanted.differences(kept)


def _sources(folder: SavepointFolder, found: Manifest, job: Job) -> tuple[Source, ...]:
    """Return the sources in Spark's order; raises CommandError where one of the savepoint's is not.

    Under another path, Spark would read every file again.
    """
    try:
        sources = followed_by(shape.recorded(found.begun, job.declared), job.declared)
    except SourcesDiffer as differences:
        raise CommandError(
            f"the savepoint {folder.checkpoint} is of a job with other sources: {differences}."
            " Nothing was changed; start with every --path and --topic that it had, and new ones"
            " if there are any. For a directory that was moved, put a link in its place.",
            code="savepoint_sources_differ",
        ) from differences
    except (KeyError, TypeError, ValueError) as error:
        raise manifest.damaged(folder.checkpoint, manifest.FILE) from error
    if shape.SOURCES not in found.begun:
        _require_place(folder, found, sources[0])
    return sources


def _require_place(folder: SavepointFolder, found: Manifest, source: Source) -> None:
    """Raise CommandError unless the files that were read are in the directory of this start.

    Older versions did not record it.
    """
    place = source.place.rstrip("/") + "/" if isinstance(source, Files) else ""
    for read in _read_files(folder, found, 0):
        # Spark's log has URIs, and the job's paths are not encoded.
        if not Files(unquote(read["path"]), Format.JSON).place.startswith(place):
            raise CommandError(
                f"the savepoint {folder.checkpoint} is of a job that has read {read['path']}, which"
                f" is not in --path {place}: files that were read would be read again. Nothing was"
                " changed; start with the --path as it was.",
                code="savepoint_sources_differ",
            )


def _read_files(folder: SavepointFolder, found: Manifest, number: int) -> list[dict[str, Any]]:
    """Return the files that a source has read; a new checkpoint has ticks of its own."""
    text = folder.read(sources_name(number)) if number < len(found.source_lines) else None
    return [json.loads(line) for line in (text or "").splitlines()]


def _require_ledger(folder: SavepointFolder, found: Manifest, sink: OutboxSink) -> int:
    """Check that the savepoint can be continued; return the newest published window end."""
    query_id = UUID(found.query_id)
    try:
        past = read_past(sink, found.stream, query_id)
    except UnadoptedCheckpoint as error:
        raise CommandError(
            f"the savepoint {folder.checkpoint} continues query {query_id}, and the stream"
            f" {found.stream} has adopted another one since. Nothing was changed; use a savepoint"
            " of that query, or continue with its checkpoint.",
            code="savepoint_outdated",
        ) from error
    if sink.proof(query_id, found.batch_id) != found.proof:
        raise CommandError(
            f"the savepoint {folder.checkpoint} was made after batch {found.batch_id} of query"
            f" {query_id}, and the ledger of this database does not have that batch with the same"
            f" content. Nothing was changed; pass the database of the stream {found.stream} with"
            " --dsn.",
            code="savepoint_not_in_ledger",
        )
    newer = newer_query(sink, found.stream, query_id)
    if newer is not None:
        raise CommandError(
            f"the stream {found.stream} continued with query {newer[0]}, up to its batch"
            f" {newer[1]}, and the savepoint {folder.checkpoint}, of query {query_id}, does not"
            " have what was published since. Nothing was changed; use a savepoint of that query, or"
            " continue with its checkpoint.",
            code="savepoint_outdated",
        )
    return past.initial.settled_until_us if past.initial else 0


def _history(folder: SavepointFolder, found: Manifest, job: Job, frontier_us: int) -> PolicyHistory:
    """Return the history with the job's policy.

    A policy may not change what was published, also after the savepoint.
    """
    try:
        kept = PolicyHistory.from_json(found.policies)
    except (KeyError, TypeError, ValueError) as error:
        raise manifest.damaged(folder.checkpoint, manifest.FILE) from error
    decided_us = max(found.watermark_us or 0, frontier_us, kept.reached_us)
    return kept.followed_by(job.policy, decided_us)


class _Beginning:
    """One attempt to make the checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        files: CheckpointFiles,
        folder: SavepointFolder,
        found: Manifest,
    ) -> None:
        self._spark = spark
        self._job = job
        self._files = files
        self._folder = folder
        self._found = found

    def run(
        self, made: Origin, history: PolicyHistory, since: Past, stopped: Callable[[], bool]
    ) -> bool:
        """Return whether the checkpoint is complete: the steps of the module's table, in order."""
        # Before anything is changed: not everything may be kept.
        self._texts(since)
        steps: tuple[Callable[[], bool | None], ...] = (
            partial(self._record_origin, made),
            partial(self._plan_no_rows, made),
            partial(self._load_state, stopped),
            partial(self._continue_sources, history, since),
            self._complete,
        )
        return all(step() is not False for step in steps)

    def _record_origin(self, made: Origin) -> None:
        self._files.remove(shape.FILE)
        self._files.write(origin.FILE, made.to_json())
        failpoint("P1")

    def _plan_no_rows(self, made: Origin) -> None:
        self._files.clear(origin.FILE)
        metadata = json.dumps({"id": made.query_id}, separators=(",", ":"))
        self._files.write("metadata", metadata)
        self._files.write("offsets/0", self._plan([NO_OFFSET]))
        failpoint("P2")

    def _complete(self) -> None:
        self._files.write(shape.FILE, Shape.of(self._job).to_json(self._files.location))
        failpoint("P5")

    def repeat(self, since: Past) -> None:
        """Keep the plans of the batches that the stream has written since the savepoint."""
        if (self._files.committed() or 0) > 0:
            return
        if self._files.read(repeats.FILE) == repeats.to_json(len(since.batches)):
            return
        for name, text in self._texts(since).items():
            if self._files.read(name) != text:
                self._files.write(name, text)

    def _texts(self, since: Past) -> dict[str, str]:
        sources = self._job.sources
        read = [
            _read_files(self._folder, self._found, number)
            for number, _ in enumerate(sources[: len(self._found.source_lines)])
        ]
        location, partitions = self._files.location, self._job.partitions
        plans = RepeatedPlans(self._spark, since, self._found, sources, read, location, partitions)
        return plans.texts()

    def _plan(self, source_lines: list[str]) -> str:
        """Return the text of `offsets/0`, with Spark's settings as they are now."""
        header, planned, *_ = self._found.offsets
        described = json.loads(planned)
        conf = {name: self._spark.conf.get(name, old) for name, old in described["conf"].items()}
        described["conf"] = conf | {"spark.sql.shuffle.partitions": str(self._job.partitions)}
        text = json.dumps(described, separators=(",", ":"))
        return "\n".join([header, text, *source_lines])

    def _load_state(self, stopped: Callable[[], bool]) -> bool:
        """Let Spark run batch 0; return whether it did before a stop."""
        conf = self._spark.conf
        conf.set("spark.sql.shuffle.partitions", str(self._job.partitions))
        arrow = "spark.sql.execution.arrow.maxBytesPerBatch"
        before = str(conf.get(arrow))
        conf.set(arrow, str(BYTES_PER_BATCH))
        try:
            with TemporaryDirectory(prefix="holdfast-no-events-") as nothing:
                if not self._run_batch_0(nothing, stopped):
                    return False
        finally:
            conf.set(arrow, before)
        failpoint("P3")
        return True

    def _run_batch_0(self, nothing: str, stopped: Callable[[], bool]) -> bool:
        initial = tables.regrouped(
            self._spark,
            {name: self._table(name) for name in tables.SCHEMAS},
            self._job.groups,
            tables.Regrouped(
                self._found.settled_until_us, self._found.watermark_us, self._job.settings
            ),
        ).groupBy("key_group")
        packed = self._spark.readStream.schema(PACKED_DDL).parquet(Path(nothing).as_uri())
        query = (
            decide(packed, self._job, initial)
            .writeStream.queryName(self._job.stream)
            .outputMode(MODE)
            .option("checkpointLocation", self._job.checkpoint)
            .foreachBatch(_require_silence)
            .trigger(availableNow=True)
            .start()
        )
        try:
            while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type] # takes a float
                if stopped():
                    return False
        finally:
            query.stop()
        if self._files.committed() != 0:
            raise StateError(
                "Spark did not commit the state of the savepoint. Nothing was written to the"
                " database; start again, with HOLDFAST_SPARK_LOG=info to see Spark's own log."
            )
        return True

    def _table(self, name: str) -> DataFrame:
        paths = self._folder.paths(self._found.files, name)
        ddl = tables.DDL[name]
        if not paths:
            return self._spark.createDataFrame([], ddl)
        return self._spark.read.schema(ddl).parquet(*paths)

    def _continue_sources(self, history: PolicyHistory, since: Past) -> None:
        """Give batch 0 the offsets of the savepoint's batch, and the watermark of the next one."""
        self._files.write(policy_history.FILE, history.to_json())
        lines = [self._source(number) for number in range(len(self._job.sources))]
        self._files.write("offsets/0", self._plan(lines))
        header, committed, *_ = (self._files.read("commits/0") or "").splitlines()
        described = json.loads(committed)
        described["nextBatchWatermarkMs"] = self._found.next_watermark_ms
        self._files.write("commits/0", f"{header}\n{json.dumps(described, separators=(',', ':'))}")
        self.repeat(since)
        failpoint("P4")

    def _source(self, number: int) -> str:
        """Write the files that a source has read; return its offset in this checkpoint."""
        lines = self._found.source_lines
        if isinstance(self._job.sources[number], Kafka) and number < len(lines):
            return lines[number]
        read = _read_files(self._folder, self._found, number)
        if not read:
            return NO_OFFSET
        self._files.write(f"sources/{number}/0", read_files.log_entry(read))
        return json.dumps({"logOffset": 0}, separators=(",", ":"))


def _require_silence(rows: DataFrame, batch_id: int) -> None:
    """Run the batch that stores the state; it has nothing to decide."""
    if rows.toArrow().num_rows or batch_id:
        raise StateError(
            f"Batch {batch_id} of a savepoint's state gave rows. Nothing was written to the"
            " database; the savepoint does not fit this version of Holdfast."
        )


def _adopt(
    files: CheckpointFiles, job: Job, sink: OutboxSink, proof: Continuation, query_id: UUID
) -> None:
    """Let the stream adopt the checkpoint, unless it has written batches since."""
    if files.query_id() == query_id and newest_batch(sink, job.stream, query_id) is None:
        sink.continue_from(proof, query_id, 0)
        failpoint("P6")


def _report(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the command's own report
