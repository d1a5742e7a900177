"""What a checkpoint was begun with, kept inside it.

A merchant's state lies in the key group that the number of groups gave it, and what is in state was
opened under the durations of its day. With other ones nothing would fail: merchants would silently
start from nothing. So the job writes its shape down before the first batch and refuses another one.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from pyspark.sql import SparkSession

from sink.contract.exits import CommandError
from spark_app.job import Job

FILE = "holdfast.json"
VERSION = 1

_OPTIONS = {
    "stream": "--stream",
    "format": "--format",
    "key_groups": "--key-groups",
    "partitions": "--partitions",
    "watermark_delay_us": "--watermark-delay",
    "late_cutoff_us": "--late-cutoff",
    "future_tolerance_us": "--future-tolerance",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What must not change between two runs on one checkpoint; durations in microseconds."""

    stream: str
    format: str
    key_groups: int
    partitions: int
    window_us: int
    watermark_delay_us: int
    late_cutoff_us: int
    future_tolerance_us: int

    @classmethod
    def of(cls, job: Job) -> Self:
        """Return the shape of a job."""
        return cls(
            stream=job.stream,
            format=job.format.value,
            key_groups=job.key_groups,
            partitions=job.partitions,
            **asdict(job.settings),
        )

    def to_json(self) -> str:
        """Return the text that is kept."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=2) + "\n"

    def differences(self, kept: dict[str, Any]) -> list[str]:
        """Name every value that is not the one kept, in words."""
        return [
            f"{_OPTIONS.get(name, name)} was {_shown(name, kept.get(name))},"
            f" is {_shown(name, value)}"
            for name, value in asdict(self).items()
            if kept.get(name) != value
        ]


def claim(spark: SparkSession, job: Job) -> None:
    """Write the job's shape into a new checkpoint, or compare it with the one that is there.

    Raises CommandError when it differs, or when the checkpoint is of another kind.
    """
    checkpoint, shape = job.checkpoint, Shape.of(job)
    files = _Files(spark, checkpoint)
    if not files.exists("offsets"):
        # No batch ran in it yet.
        files.write(FILE, shape.to_json())
        return
    text = files.read(FILE)
    if text is None:
        raise CommandError(
            f"{checkpoint} holds a checkpoint that this job did not begin (it has no {FILE})."
            " Nothing was read or written; name another directory with --checkpoint."
        )
    differences = shape.differences(_parse(text, checkpoint))
    if differences:
        raise CommandError(
            f"the checkpoint {checkpoint} was begun with other settings: {'; '.join(differences)}."
            " Its state would not fit. Nothing was read or written; start with the settings as they"
            " were, or with a new checkpoint, which the stream then has to adopt"
            " (`holdfast stream adopt`)."
        )


def _parse(text: str, checkpoint: str) -> dict[str, Any]:
    try:
        kept = json.loads(text)
    except ValueError:
        kept = None
    if not isinstance(kept, dict) or not isinstance(kept.get("version"), int):
        raise CommandError(
            f"{FILE} in {checkpoint} cannot be read. Nothing was read or written; restore the file,"
            " it names the settings with which the checkpoint was begun."
        )
    if kept["version"] > VERSION:
        raise CommandError(
            f"the checkpoint {checkpoint} was written by a newer Holdfast. Nothing was read or"
            " written; run that version."
        )
    return kept


def _shown(name: str, value: Any) -> str:
    if name.endswith("_us") and isinstance(value, int):
        return f"{value / 1_000_000:g}s"
    return str(value)


class _Files:
    """The checkpoint's files through Hadoop, because it may lie on any file system Spark knows."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's files
        self._root = self._jvm.org.apache.hadoop.fs.Path(checkpoint)
        configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        self._system = self._root.getFileSystem(configuration)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._path(name)))

    def read(self, name: str) -> str | None:
        if not self.exists(name):
            return None
        stream = self._system.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file that is there as a whole or not at all."""
        part = self._path(f".{name}.part")
        stream = self._system.create(part, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._system.delete(self._path(name), False)
        self._system.rename(part, self._path(name))
