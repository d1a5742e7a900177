"""`job savepoint`: start Spark, write a savepoint, and print what it holds."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.sink.contract.checkpoint import needs_manager
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import counted
from holdfast.sink.errors import SinkError
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint.shape import FILE
from holdfast.spark_app.exposure.settings import MILLISECOND_US
from holdfast.spark_app.input.source import absolute
from holdfast.spark_app.inspection.reader import CheckpointInfo, no_checkpoint
from holdfast.spark_app.lifecycle.failure import diagnose, explain
from holdfast.spark_app.operator.job import use_manager
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.engine import start_quietly
from holdfast.spark_app.runtime.java import require_java
from holdfast.spark_app.runtime.launch import Launch, launched_by_spark_submit
from holdfast.spark_app.savepoint.folder import require_place, require_safe
from holdfast.spark_app.savepoint.manifest import Manifest
from holdfast.spark_app.savepoint.shelf import Shelf, described
from holdfast.spark_app.savepoint.write import save


def run(
    *,
    checkpoint: str,
    to: str,
    batch: int | None,
    dsn: str,
    launch: Launch | None = None,
    as_json: bool,
) -> None:
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
    if not launched_by_spark_submit():
        require_java()
    spark = start_quietly("holdfast savepoint", launch)
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
            if needs_manager(checkpoint):
                use_manager(spark, CheckpointFiles(spark, checkpoint))
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


def print_shelf(place: str, launch: Launch, *, as_json: bool, verify: bool = False) -> ExitCode:
    """Print the savepoints in a directory; raises CommandError where there is none."""
    with _shelf(place, launch) as shelf:
        kept = list(shelf.kept())
        problems = [shelf.problem(each) if verify else each.problem for each in kept]
    rows = [described(each, why) for each, why in zip(kept, problems, strict=True)]
    if as_json:
        print(json.dumps({"place": shelf.place, "savepoints": rows}, indent=2))  # noqa: T201 - the command's answer
    else:
        print("\n".join(_shelf_lines(rows, verify=verify)))  # noqa: T201 - as above
    if not rows:
        raise CommandError(
            f"there is no savepoint in {shelf.place}. Nothing was changed.",
            ExitCode.NOTHING_MATCHED,
            code="nothing_matched",
        )
    if not any(problems):
        return ExitCode.OK
    return ExitCode.FAILED if all(problems) else ExitCode.DEGRADED


def _shelf_lines(rows: list[dict[str, Any]], *, verify: bool) -> Iterator[str]:
    for row in rows:
        if row["problem"] is not None:
            yield f"{row['savepoint']}  {row['problem']}"
            continue
        intact = "  intact" if verify else ""
        yield (
            f"{row['savepoint']}  {row['stream']} after batch {row['batch_id']} of query"
            f" {row['query_id']}, {row['bytes']:,} bytes{intact}"
        )


def prune_shelf(place: str, launch: Launch, stream: str, keep: int, *, as_json: bool) -> None:
    """Remove all but the newest savepoints of a stream, and print which."""
    with _shelf(place, launch) as shelf:
        removed = shelf.prune(stream, keep)
    if as_json:
        print(json.dumps({"place": shelf.place, "removed": removed}, indent=2))  # noqa: T201 - the command's answer
    else:
        print(f"removed {len(removed)}: {', '.join(removed)}" if removed else "removed none")  # noqa: T201 - as above


@contextmanager
def _shelf(place: str, launch: Launch) -> Iterator[Shelf]:
    """Start Spark and yield a directory of savepoints; raises CommandError."""
    place = absolute(place)
    require_place(place, "--in")
    session.quiet_logs()
    if not launched_by_spark_submit():
        require_java()
    spark = start_quietly("holdfast savepoints", launch)
    try:
        yield Shelf(spark, place)
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise CommandError(
            f"{place} cannot be read or changed: {diagnose(error).said.rstrip('.')}. Repeat the"
            " command when its file system answers.",
            code="file_system_failed",
        ) from error
    finally:
        # A JVM that has died was reported already.
        with suppress(Py4JError, OSError):
            spark.stop()


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
            f" {size:,} bytes in {counted(len(found.files), 'file')}"
        ),
    ]


def _moment(milliseconds: int) -> str | None:
    return rfc3339_from_micros(milliseconds * MILLISECOND_US) if milliseconds else None
