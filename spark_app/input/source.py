"""The files that hold events, read as a stream: one immutable file after another, oldest first.

A file must appear atomically (written elsewhere, then renamed into the directory) and never change.
Sub-directories are read too. A file or directory whose name begins with `.` or `_` is not read,
except that Spark reads `_name=value`.
"""

import re
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path, PurePosixPath
from posixpath import normpath

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.sink.rows.evidence import row_text
from holdfast.spark_app.input.events import EVENT, Fault, Parsed
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.lines import parse_lines


def parse_columns(batch: pa.RecordBatch) -> Parsed:
    """Return the columns of EVENT of a batch; text that is not UTF-8 becomes null and a fault."""
    faults: dict[int, Fault] = {}
    columns = []
    for field in EVENT:
        column = batch.column(field.name)
        if field.type == pa.string():
            column = _utf8(field.name, column, faults)
        columns.append(column)
    events = pa.RecordBatch.from_arrays(columns, schema=EVENT)

    def text(position: int) -> str:
        return row_text({name: batch.column(name)[position] for name in EVENT.names})

    return Parsed(events, text, faults)


def _utf8(name: str, column: pa.Array, faults: dict[int, Fault]) -> pa.Array:
    try:
        # Spark passes the bytes of the file unchecked.
        column.validate(full=True)
    except pa.ArrowInvalid:
        values: list[str | None] = []
        for position, raw in enumerate(column.cast(pa.binary()).to_pylist()):
            try:
                values.append(None if raw is None else raw.decode())
            except UnicodeDecodeError:
                values.append(None)
                shown = raw.decode(errors="backslashreplace")[:80]
                faults.setdefault(position, Fault(Reason.BAD_TEXT, f"{name} is not UTF-8: {shown}"))
        return pa.array(values, pa.string())
    return column


PARQUET_DDL = (
    "event_id string, merchant_id string, type string, amount_minor decimal(20,0), currency string,"
    " occurred_at timestamp"
)
"""The schema for Parquet files. With bigint, Spark would accept an integer of any logical type as
the amount: the hundredths of a decimal(18,2), a date, a time. With a decimal of scale 0 it accepts
only whole numbers, and refuses a file with anything else."""

_AGE_MAX = "1000000d"
"""Spark silently ignores a file that is older than the newest one by more than this; its default is
a week. A file copied with its timestamp must not be lost, and a timestamp of an archive may be
1980: so this is more than any two timestamps differ by."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
PATTERN = re.compile(r"[\[\]{}*?\\]")
"""The characters of Hadoop's patterns. Spark reads a path with one as a pattern, and then silently
does not find a name that contains the character itself."""


def absolute(location: str) -> str:
    """Return a path without a scheme as an absolute path, a URI unchanged."""
    return location if not location or _SCHEME.match(location) else str(Path(location).absolute())


def require_directory(path: str, checkpoint: str) -> None:
    """Check the directory of the event files without Spark.

    Raises CommandError when it does not exist, when Spark would read its name as a pattern, and
    when the checkpoint is inside it: its files would be read as events.
    """
    folder = local(path)
    if folder is not None and not (path and folder.is_dir()):
        raise CommandError(
            f"there is no directory {path or repr(path)}. Nothing was started; --path names the"
            " directory into which the event files are put.",
            ExitCode.USAGE,
            code="unknown_directory",
        )
    require_plain(path)
    if holds(path, checkpoint):
        raise CommandError(
            f"the checkpoint {checkpoint} lies in {path}, where its files would be read as events."
            " Nothing was started; name a directory beside it with --checkpoint.",
            ExitCode.USAGE,
            code="checkpoint_in_input",
        )


def require_plain(location: str) -> None:
    """Raise CommandError for a local path that Spark would read as a pattern."""
    folder = local(location)
    if folder is not None and (found := PATTERN.search(str(folder))):
        raise CommandError(
            f"{folder} holds {found[0]!r}, and Spark reads a path with one of []{{}}*?\\ as a"
            " pattern. Nothing was started; rename the directory, or link to it under another"
            " name.",
            ExitCode.USAGE,
            code="invalid_directory",
        )


def local(location: str) -> Path | None:
    """Return a local path without decoding it, as Hadoop does; None for other file systems."""
    scheme = _SCHEME.match(location)
    if scheme is None:
        return Path(location).absolute()
    return Path("/" + location[scheme.end() :].lstrip("/")) if scheme[1] == "file" else None


def holds(path: str, other: str) -> bool:
    """Return whether files in another directory would be read as events of `path`."""
    between = _between(path, other)
    return between is not None and not any(map(_hidden, between))


def _hidden(name: str) -> bool:
    # Spark reads `_day=1` as a partition column and its value.
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def require_apart(paths: Sequence[str]) -> None:
    """Raise CommandError when two paths are one directory, or one is inside the other.

    Each is a source of its own, and a file in both would be read twice.
    """
    for one, other in permutations(paths, 2):
        between = _between(one, other)
        if between is not None:
            said = f"{other} lies in {one}" if between else f"{one} and {other} are one directory"
            raise CommandError(
                f"{said}: its files would be read twice. Nothing was started; name each directory"
                " with one --path, which also reads the directories in it.",
                ExitCode.USAGE,
                code="repeated_input",
            )


def _between(path: str, other: str) -> tuple[str, ...] | None:
    """Return the other path relative to the first; None where it is outside."""
    folder, inside = (
        PurePosixPath(normpath(location)) if found is None else found.resolve()
        for location, found in ((path, local(path)), (other, local(other)))
    )
    return inside.relative_to(folder).parts if inside.is_relative_to(folder) else None


def read(
    spark: SparkSession, path: str, format_: Format, max_files_per_trigger: int | None
) -> DataFrame:
    """Return a streaming DataFrame of rows that `parser(format_)` reads, with their `batch_time`.

    `batch_time` is the timestamp that Spark stores with the batch, so a replay has the same one.
    """
    reader = spark.readStream.option("maxFileAge", _AGE_MAX).option("recursiveFileLookup", True)
    if max_files_per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", max_files_per_trigger)
    match format_:
        case Format.JSON:
            # As bytes: a line that is not UTF-8 must arrive unchanged.
            lines = reader.format("text").load(path)
            rows = lines.select(F.col("value").cast("binary").alias("line"))
        case Format.PARQUET:
            rows = parquet_amounts(reader.format("parquet").schema(PARQUET_DDL).load(path))
    return rows.withColumn("batch_time", F.current_timestamp())


def parquet_amounts(rows: DataFrame) -> DataFrame:
    """Return rows of `PARQUET_DDL` with `amount_minor` as a 64-bit integer.

    A number beyond that becomes the largest one, which the validation refuses as out of range.
    """
    amount = F.col("amount_minor")
    beyond = F.when(amount.isNotNull(), F.lit(2**63 - 1))
    return rows.withColumn("amount_minor", F.coalesce(amount.try_cast("bigint"), beyond))


def parser(format_: Format) -> Callable[[pa.RecordBatch], Parsed]:
    """Return the function that parses the batches of `read`."""
    match format_:
        case Format.JSON:
            return _parse_lines
        case Format.PARQUET:
            return parse_columns


def _parse_lines(batch: pa.RecordBatch) -> Parsed:
    return parse_lines(batch.column("line"))
