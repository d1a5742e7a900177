"""Writes the state after one committed batch as a savepoint; the checkpoint is only read."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.sink.transaction.continuation import Continuation
from holdfast.spark_app.checkpoint import policy_history, shape
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.exposure import codec
from holdfast.spark_app.input.source import holds
from holdfast.spark_app.inspection.reader import Operator, StateReader
from holdfast.spark_app.lifecycle.failure import diagnose
from holdfast.spark_app.operator import stored
from holdfast.spark_app.savepoint import read_files, tables
from holdfast.spark_app.savepoint.folder import SavepointFolder
from holdfast.spark_app.savepoint.manifest import Manifest

FRAMES_PER_BATCH = 16
"""Of a few megabytes each: so many are decoded at once."""

ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What Spark recorded of a committed batch."""

    batch_id: int
    offsets: list[str]
    watermark_ms: int
    next_watermark_ms: int

    @classmethod
    def read(cls, files: CheckpointFiles, batch_id: int) -> "Plan":
        """Read the batch's plan and its commit; raises CommandError where one cannot be read."""
        offsets = (files.read(f"offsets/{batch_id}") or "").splitlines()
        commit = (files.read(f"commits/{batch_id}") or "").splitlines()
        try:
            planned, committed = json.loads(offsets[1]), json.loads(commit[1])
            return cls(
                batch_id,
                offsets,
                int(planned["batchWatermarkMs"]),
                max(int(planned["batchWatermarkMs"]), int(committed["nextBatchWatermarkMs"])),
            )
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CommandError(
                f"the plan of batch {batch_id} (offsets/{batch_id}, commits/{batch_id}) is not in"
                f" {files.checkpoint}, or cannot be read. Nothing was written; if the job is"
                " running, Spark may just have removed it: try a newer batch.",
                code="checkpoint_damaged",
            ) from error


def save(
    spark: SparkSession, checkpoint: str, to: str, sink: OutboxSink, batch: int | None
) -> Manifest:
    """Write a savepoint of a batch, by default the newest committed one, and return its manifest.

    Raises CommandError, and what `OutboxSink.read` raises; then there is nothing at `to`.
    """
    folder = SavepointFolder(spark, to)
    folder.require_free()
    reader = StateReader(spark, checkpoint)
    for remaining in reversed(range(ATTEMPTS)):
        operator = require_operator(reader, checkpoint)
        wanted = operator.newest if batch is None else batch
        require_kept(operator, wanted)
        try:
            return _save(spark, checkpoint, folder, sink, operator, wanted)
        except CommandError:
            # Spark removes old batches of a running job.
            newest = require_operator(reader, checkpoint).newest
            if batch is not None or newest == wanted or not remaining or folder.exists:
                raise
    raise AssertionError("unreachable")


def require_operator(reader: StateReader, checkpoint: str) -> Operator:
    """Return the job's operator; raises CommandError before the first committed batch."""
    operator = reader.operator()
    if operator is None:
        raise CommandError(
            f"{checkpoint} has no committed batch yet. Nothing was written; try again later.",
            ExitCode.NOTHING_MATCHED,
            code="no_committed_batch",
        )
    return operator


def require_kept(operator: Operator, batch: int) -> None:
    """Raise CommandError for a batch whose state Spark does not keep."""
    if not operator.oldest <= batch <= operator.newest:
        when = "is not committed yet" if batch > operator.newest else "is no longer available"
        raise CommandError(
            f"batch {batch} {when}: a savepoint can be made of the batches {operator.oldest} to"
            f" {operator.newest}. Nothing was written.",
            ExitCode.NOTHING_MATCHED,
            code="batch_not_kept",
        )


def _save(
    spark: SparkSession,
    checkpoint: str,
    folder: SavepointFolder,
    sink: OutboxSink,
    operator: Operator,
    batch: int,
) -> Manifest:
    files = CheckpointFiles(spark, checkpoint)
    begun = _begun(files)
    _require_beside(folder.checkpoint, checkpoint, begun)
    plan = Plan.read(files, batch)
    proof = _proof(sink, files, begun["stream"], batch)
    with _written(folder) as part:
        settled_until_us = _tables(spark, StateReader(spark, checkpoint), operator, batch, part)
        _sources(files, begun, plan, part)
        found = Manifest(
            savepoint_id=str(uuid4()),
            stream=begun["stream"],
            query_id=str(proof.query_id),
            batch_id=batch,
            digest=proof.digest.hex(),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            holdfast=version("holdfast"),
            spark=spark.version,
            codec=_codec(spark, part),
            begun=begun,
            watermark_ms=plan.watermark_ms,
            next_watermark_ms=plan.next_watermark_ms,
            settled_until_us=settled_until_us,
            offsets=plan.offsets,
            policies=_required(files, policy_history.FILE, policy_history.VERSION),
            rows=_counts(spark, part),
            files=[file for name in part.visible() if (file := part.checksum(name))],
        )
        return folder.publish(part, found)


def _require_beside(to: str, checkpoint: str, begun: dict[str, Any]) -> None:
    """Raise CommandError for a place in which the files would be events, or part of a checkpoint.

    Older versions did not record the directory of the events.
    """
    paths = [source["path"] for source in begun.get(shape.SOURCES, ()) if "path" in source]
    reasons = dict.fromkeys(paths, "where its files would be read as events")
    reasons[checkpoint] = "with which it would be lost"
    for place, reason in reasons.items():
        if holds(place, to):
            raise CommandError(
                f"{to} lies in {place}, {reason}. Nothing was written; name a directory beside it"
                " with --to.",
                ExitCode.USAGE,
                code="invalid_place",
            )


@contextmanager
def _written(folder: SavepointFolder) -> Iterator[SavepointFolder]:
    """Yield the folder to write; it is removed unless the block has published it."""
    part = folder.prepare()
    try:
        yield part
    except (PySparkException, Py4JError, OSError) as error:
        raise CommandError(
            f"the savepoint {folder.checkpoint} was not written:"
            f" {diagnose(error).said.rstrip('.')}. There is nothing in its place, and"
            " the checkpoint was only read. Correct the cause and run the command again; if the job"
            " is running, Spark may just have removed the batch.",
            code="savepoint_not_written",
        ) from error
    finally:
        with suppress(Py4JError, OSError):
            part.discard()


def _begun(files: CheckpointFiles) -> dict[str, Any]:
    kept = _required(files, shape.FILE, shape.VERSION)
    return {name: value for name, value in kept.items() if name != shape.LOCATION}


def _required(files: CheckpointFiles, name: str, version: int) -> dict[str, Any]:
    kept = files.read_json(name, version)
    if kept is None:
        raise files.missing(name)
    return kept


def _proof(sink: OutboxSink, files: CheckpointFiles, stream: str, batch: int) -> Continuation:
    query_id = files.query_id()
    proof = sink.proof(query_id, batch)
    if proof is None:
        raise CommandError(
            f"the ledger has no batch {batch} of query {query_id} of the stream {stream}, so"
            " nothing could prove later what the savepoint continues. Nothing was written; pass"
            " the database that the job writes with --dsn.",
            code="savepoint_not_in_ledger",
        )
    return proof


def _tables(
    spark: SparkSession, reader: StateReader, operator: Operator, batch: int, part: SavepointFolder
) -> int | None:
    """Write the three tables; return the settled frontier."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(FRAMES_PER_BATCH))
    with reader.all_groups(operator, batch) as values:
        for name, source in tables.SOURCE.items():
            rows = values[source].mapInArrow(tables.table_rows(name), tables.DDL[name])
            writer = rows.write.option("compression", "zstd")
            writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            writer.parquet(part.location_of(name))
        [newest] = values[stored.GROUP].agg(F.max("moment").alias("moment")).collect()
    moment: int | None = newest.moment
    return moment


def _codec(spark: SparkSession, part: SavepointFolder) -> int:
    """Return the version of the state: the Holdfast before must refuse what it would leave out."""
    merchants = spark.read.schema(tables.DDL[tables.MERCHANTS])
    decided = merchants.parquet(part.location_of(tables.MERCHANTS)).filter(
        "hand_number IS NOT NULL"
    )
    return codec.WITHOUT_HANDS if decided.isEmpty() else codec.VERSION


def _sources(
    files: CheckpointFiles, begun: dict[str, Any], plan: Plan, part: SavepointFolder
) -> None:
    """Write the files that each file source has read."""
    for number, line in enumerate(plan.offsets[2:]):
        if not is_files(begun, number):
            continue
        try:
            offset = read_files.log_offset(line)
            if offset is None:
                continue
            read = read_files.read_up_to(files, number, offset)
        except (ValueError, KeyError, TypeError) as error:
            raise files.damaged(f"sources/{number}") from error
        text = "".join(json.dumps(row) + "\n" for row in read)
        part.write(sources_name(number), text)


def is_files(begun: dict[str, Any], number: int) -> bool:
    """Return whether a source reads event files; older versions had only such a one."""
    sources = begun.get(shape.SOURCES)
    return sources is None or bool(sources[number]["kind"] == "files")


def sources_name(number: int) -> str:
    """Return the name of the list of the files that a source has read."""
    return f"sources/{number}.jsonl"


def _counts(spark: SparkSession, part: SavepointFolder) -> dict[str, int]:
    return {
        name: spark.read.schema(ddl).parquet(part.location_of(name)).count()
        for name, ddl in tables.DDL.items()
    }
