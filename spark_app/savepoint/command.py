"""`job savepoint`: start Spark, write a savepoint, and print what it holds."""

import json
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.errors import SinkError
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.spark_app.checkpoint.shape import FILE
from holdfast.spark_app.exposure.settings import MILLISECOND_US
from holdfast.spark_app.input.source import absolute
from holdfast.spark_app.inspection.reader import CheckpointInfo, no_checkpoint
from holdfast.spark_app.lifecycle.failure import diagnose, explain
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.engine import start_quietly
from holdfast.spark_app.runtime.java import require_java
from holdfast.spark_app.savepoint.folder import require_place, require_safe
from holdfast.spark_app.savepoint.manifest import Manifest
from holdfast.spark_app.savepoint.write import save


def run(*, checkpoint: str, to: str, batch: int | None, dsn: str, as_json: bool) -> None:
    """Write a savepoint and print it; raises CommandError, and then there is nothing at `to`."""
    checkpoint, to = absolute(checkpoint), absolute(to)
    require_place(to, "--to")
    for place in (checkpoint, to):
        require_safe(place)
    # Before the start of Spark, so that a wrong path fails at once.
    if checkpoint.startswith("/") and not Path(checkpoint, FILE).is_file():
        raise no_checkpoint(checkpoint)
    if to.startswith("/") and Path(to).exists():
        raise CommandError(
            f"{to} exists already. Nothing was written; a savepoint is never replaced: name another"
            " directory with --to.",
            ExitCode.USAGE,
            code="savepoint_exists",
        )
    session.quiet_logs()
    if not session.launched_by_spark_submit():
        require_java()
    spark = start_quietly("holdfast savepoint")
    try:
        found = write(spark, checkpoint, to, dsn, batch)
    finally:
        # A JVM that has died was reported already.
        with suppress(Py4JError, OSError):
            spark.stop()
    if as_json:
        json.dump(document(found, checkpoint, to), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        print("\n".join(text(found, to)))  # noqa: T201 - the command's answer


def write(spark: SparkSession, checkpoint: str, to: str, dsn: str, batch: int | None) -> Manifest:
    """Write a savepoint; raises CommandError."""
    try:
        stream = CheckpointInfo(spark, checkpoint).settings().stream
        with closing(_sink(dsn, stream, checkpoint)) as sink:
            sink.check()
            sink.use_session(spark)
            return save(spark, checkpoint, to, sink, batch)
    except SinkError as error:
        raise CommandError(explain(error), code="savepoint_refused") from error
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise CommandError(
            f"{checkpoint} cannot be read: {diagnose(error).said.rstrip('.')}. Nothing was"
            " written.",
            code="checkpoint_unreadable",
        ) from error


def _sink(dsn: str, stream: str, checkpoint: str) -> OutboxSink:
    try:
        return OutboxSink(dsn, stream=stream, checkpoint=checkpoint)
    except ValueError as error:
        raise CommandError(
            f"{error}. Nothing was written.", ExitCode.USAGE, code="invalid_place"
        ) from error


def document(found: Manifest, checkpoint: str, to: str) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "checkpoint": checkpoint,
        "savepoint": to,
        "savepoint_id": found.savepoint_id,
        "stream": found.stream,
        "query_id": found.query_id,
        "batch_id": found.batch_id,
        "watermark": _moment(found.watermark_ms),
        "next_watermark": _moment(found.next_watermark_ms),
        "key_groups": found.begun["key_groups"],
        "rows": found.rows,
        "bytes": sum(file.bytes for file in found.files),
        "files": len(found.files),
        "holdfast": found.holdfast,
        "spark": found.spark,
    }


def text(found: Manifest, to: str) -> list[str]:
    """Return the lines that the command prints."""
    size = sum(file.bytes for file in found.files)
    counts = (f"{count:,} {name}" for name, count in found.rows.items())
    return [
        f"savepoint of {found.stream} after batch {found.batch_id}: {to}",
        (
            f"watermark {_moment(found.watermark_ms) or 'none yet'}; {', '.join(counts)};"
            f" {size:,} bytes in {len(found.files)} files"
        ),
    ]


def _moment(milliseconds: int) -> str | None:
    return rfc3339_from_micros(milliseconds * MILLISECOND_US) if milliseconds else None
