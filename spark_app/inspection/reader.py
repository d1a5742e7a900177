"""What a checkpoint holds: the job's files, and the state, read by Spark's own state reader.

Only committed files are read and none is written, so a job may run on the checkpoint meanwhile.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint.shape import FILE, VERSION
from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.lifecycle.failure import diagnose
from holdfast.spark_app.operator import stored
from holdfast.spark_app.operator.groups import group_numbers

_TIMERS = "timers"

_VALUES = {
    stored.GROUP: {"moment": "value.settled_until", "content": "value.merchants"},
    stored.WINDOWS: {"window_end": "user_map_key.window_end", "content": "user_map_value.content"},
    stored.IDS: {
        "window_end": "user_map_key.window_end",
        "piece": "user_map_key.piece",
        "content": "user_map_value.content",
    },
    _TIMERS: {"moment": "expiration_timestamp_ms"},
}
"""The columns read of each kind of value. All are read as rows of one schema, in one job."""

_COLUMNS = {"window_end": "bigint", "piece": "int", "moment": "bigint", "content": "string"}


class Operator(NamedTuple):
    """The stateful operator of a checkpoint, and the batches after which its state can be read."""

    number: int
    oldest: int
    newest: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """A key group after one batch."""

    timer_us: int | None
    """When Spark calls the group next, in microseconds."""
    state: GroupState


class StateReader:
    """Reads a checkpoint; raises CommandError for what cannot be read."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        # Spark 4.1 reads state only where a manager of queries was made once.
        _ = spark.streams

    def operator(self) -> Operator | None:
        """Find the exposure job's operator; None before the first committed batch."""
        with self._reading() as location:
            rows = self._spark.read.format("state-metadata").load(location).collect()
        for row in rows:
            if _variables(row).issuperset(_VALUES.keys() - {_TIMERS}):
                found = Operator(row.operatorId, row.minBatchId, row.maxBatchId)
                return found if found.newest >= 0 else None
        if not rows:
            return None
        raise CommandError(
            f"the state in {self._checkpoint} was written by another version of the job."
            " Nothing was changed; use `job inspect` of the version that runs on it.",
            code="checkpoint_version_mismatch",
        )

    def key_group(
        self, operator: Operator, number: int, batches: Iterable[int]
    ) -> dict[int, Remembered]:
        """Read a key group as it was after each of these batches."""
        wanted = sorted(set(batches))
        with self._reading() as location:
            values = [
                self._values(location, operator, batch, part)
                # Spark's reader supports no filter: rows of other groups are dropped here.
                .where(F.col("key.key_group") == number)
                .select(F.lit(batch).alias("batch"), F.lit(part).alias("part"), *_shape(part))
                for batch in wanted
                for part in _VALUES
            ]
            rows = reduce(DataFrame.unionAll, values).collect()
            return {batch: _assemble([r for r in rows if r.batch == batch]) for batch in wanted}

    def contents(self, operator: Operator, batch: int) -> Iterator[tuple[str, str | None]]:
        """Yield the kind and the content of every stored value after a batch, in no order."""
        with self._reading() as location:
            values = [
                self._values(location, operator, batch, part).select(
                    F.lit(part).alias("part"), *_shape(part)
                )
                for part in (stored.GROUP, stored.WINDOWS, stored.IDS)
            ]
            for row in reduce(DataFrame.unionAll, values).toLocalIterator():
                yield row.part, row.content

    def _values(self, location: str, operator: Operator, batch: int, part: str) -> DataFrame:
        reader = self._spark.read.format("statestore")
        reader = reader.option("operatorId", operator.number).option("batchId", batch)
        if part == _TIMERS:
            return reader.option("readRegisteredTimers", True).load(location)
        return reader.option("stateVarName", part).load(location)

    @contextmanager
    def all_groups(self, operator: Operator, batch: int) -> Iterator[dict[str, DataFrame]]:
        """Yield the values of all key groups after a batch, by kind: `_COLUMNS` of each value.

        Run them inside the block. Their errors are Spark's.
        """
        kinds = (stored.GROUP, stored.WINDOWS, stored.IDS)
        with self._location() as location:
            yield {
                part: self._values(location, operator, batch, part).select(*_shape(part))
                for part in kinds
            }

    @contextmanager
    def _reading(self) -> Iterator[str]:
        """As `_location`; Spark's errors become CommandError."""
        with self._location() as location:
            try:
                yield location
            except StateError as error:
                raise CommandError(str(error), code="checkpoint_damaged") from error
            except (PySparkException, Py4JJavaError) as error:
                raise CommandError(self._explain(error), code="checkpoint_unreadable") from error

    @contextmanager
    def _location(self) -> Iterator[str]:
        """Yield a location under which Spark's reader finds the checkpoint."""
        with TemporaryDirectory(prefix="holdfast-inspect-") as folder:
            location = self._checkpoint
            if location.startswith("/") and quote(location) != location:
                # The reader uses a path's URI as the path: with a blank in it, it finds nothing.
                link = Path(folder, "checkpoint")
                link.symlink_to(location)
                location = str(link)
            yield location

    def _explain(self, error: PySparkException | Py4JJavaError) -> str:
        said = diagnose(error).said.rstrip(".")
        if "/_stateSchema/" in said:
            return (
                f"{self._checkpoint} was begun in another place, and Spark reads a part of its"
                " state from there. Nothing was changed; move it back there, or make that path a"
                f" link to it: {said}."
            )
        return (
            f"the state in {self._checkpoint} cannot be read: {said}. Nothing was"
            " changed; if the job is running, the batch may just have been removed: try a newer"
            " one."
        )


def _variables(row: Row) -> set[str]:
    properties = json.loads(row.operatorProperties or "{}")
    return {variable["stateName"] for variable in properties.get("stateVariables", [])}


def _shape(part: str) -> list[Column]:
    found = _VALUES[part]
    return [
        (F.col(found[name]) if name in found else F.lit(None)).cast(kind).alias(name)
        for name, kind in _COLUMNS.items()
    ]


def _assemble(rows: list[Row]) -> Remembered:
    group = next((row for row in rows if row.part == stored.GROUP), None)
    timers = [row.moment for row in rows if row.part == _TIMERS]
    return Remembered(
        timer_us=min(timers) * MILLISECOND_US if timers else None,
        state=stored.decode_group(
            settled_until=None if group is None else group.moment,
            merchants=None if group is None else group.content,
            windows={r.window_end: r.content for r in rows if r.part == stored.WINDOWS},
            ids={(r.window_end, r.piece): r.content for r in rows if r.part == stored.IDS},
        ),
    )


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """The settings with which the checkpoint was begun."""

    stream: str
    key_groups: tuple[int, ...]
    """The grouping keys of the key groups."""
    settings: Settings


class CheckpointInfo:
    """The job's settings and Spark's offsets in a checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._files = CheckpointFiles(spark, checkpoint)

    def settings(self) -> CheckpointSettings:
        """Read the job's settings; raises CommandError where there are none."""
        kept = self._files.read_json(FILE, VERSION)
        if kept is None:
            raise no_checkpoint(self._checkpoint)
        try:
            settings = Settings(**{name: kept[name] for name in Settings.__dataclass_fields__})
            groups = group_numbers(kept["key_groups"], kept["partitions"])
            return CheckpointSettings(kept["stream"], groups, settings)
        except (KeyError, TypeError, ValueError) as error:
            raise CommandError(
                f"{FILE} in {self._checkpoint} is incomplete ({error}). Nothing was changed;"
                " restore the file.",
                code="checkpoint_damaged",
            ) from error

    def watermark_us(self, batch: int) -> int | None:
        """Return the watermark of a batch, in microseconds; None before the first one."""
        text = self._files.read(f"offsets/{batch}")
        try:
            planned = json.loads((text or "").splitlines()[1])
            return int(planned["batchWatermarkMs"]) * MILLISECOND_US or None
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CommandError(
                f"the plan of batch {batch} (offsets/{batch}) is not in {self._checkpoint}, or"
                " cannot be read. Nothing was changed; if the job is running, the batch may just"
                " have been removed: try a newer one.",
                code="checkpoint_damaged",
            ) from error


def no_checkpoint(checkpoint: str) -> CommandError:
    """Return the error of a directory that is not a checkpoint of the exposure job."""
    return CommandError(
        f"{checkpoint} is not a checkpoint of the exposure job: there is no {FILE} in it. Nothing"
        " was read; pass the --checkpoint of `job run`.",
        ExitCode.USAGE,
        code="not_a_checkpoint",
    )
