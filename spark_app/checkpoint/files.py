"""A checkpoint's files: Holdfast's own, and those of Spark that the job reads.

Read through Hadoop, because a checkpoint may be on any file system that Spark supports.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID, uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from holdfast.sink.contract.checkpoint import needs_manager
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.numbers import is_whole
from holdfast.spark_app.exposure.settings import MILLISECOND_US

NO_OFFSET = "-"
"""How Spark records that a source had no offset yet."""

CONDITIONAL_CREATE = "fs.option.create.conditional.overwrite"
"""What an object store's client of Hadoop can do that creates a file only where there is none."""

RESTORING = "holdfast-restore.json"
"""In a checkpoint while `job checkpoints restore` is unfinished."""

RESTORE = "Nothing was read or written; restore the checkpoint from a copy"


class Planned(NamedTuple):
    """A batch as Spark recorded it before it ran."""

    batch_id: int
    watermark_us: int
    """0 before the first watermark."""
    sources: tuple[str, ...]
    """The end of its input in each source, as JSON of the source or `NO_OFFSET`."""


_Result = TypeVar("_Result")


class Owned(Protocol):
    """`OutboxSink.owned`: calls `work` while no other driver can take the stream."""

    def __call__(self, work: Callable[[], _Result], *, take_free: bool = False) -> _Result: ...


def _unguarded(work: Callable[[], _Result], *, take_free: bool = False) -> _Result:  # noqa: ARG001 - as `Owned`
    return work()


class CheckpointFiles:
    """The files of one checkpoint, which need not exist yet.

    With `owned`, each change is made only while the stream is this driver's. One that removes what
    another driver may have written takes a stream that no run ever had.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, owned: Owned = _unguarded) -> None:
        context: Any = spark.sparkContext
        self.checkpoint = checkpoint
        self._owned = owned
        self._jvm = context._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's files
        self._gateway = context._gateway  # noqa: SLF001 - as above
        self._root = self._jvm.org.apache.hadoop.fs.Path(checkpoint)
        self._configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        self._system = self._root.getFileSystem(self._configuration)

    @property
    def location(self) -> str:
        """The checkpoint's path in Spark: absolute, with its scheme, links not resolved."""
        return str(self._system.makeQualified(self._root).toString())

    @property
    def is_local(self) -> bool:
        """Whether the checkpoint is on a disk of this machine, by its scheme."""
        return self.location.startswith("file:")

    def read(self, name: str) -> str | None:
        """Return the text of a file, None where there is none.

        Raises CommandError when its checksum does not match.
        """
        # On an object store, a question whether it exists would be a request more.
        with suppress(FileNotFoundError), self._opened(name) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        return None

    def check(self, name: str) -> None:
        """Read a file in the JVM; raises CommandError when its checksum does not match.

        Spark does not compare the checksums of its own logs.
        """
        with self._opened(name) as stream:
            self._jvm.org.apache.commons.io.IOUtils.consume(stream)

    @contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        try:
            stream = self._system.open(self._path(name))
        except Py4JJavaError as error:
            if _kind(error) == "FileNotFoundException":
                raise FileNotFoundError(name) from error
            raise
        try:
            yield stream
        except Py4JJavaError as error:
            if _kind(error) == "ChecksumException":
                raise self.damaged(name) from error
            raise
        finally:
            stream.close()

    def _opened_by(self, builder: Any) -> Any:
        """Return the stream of Hadoop's `openFile`, whose errors are those of `open`."""
        helper = self._jvm.org.apache.hadoop.util.functional.FutureIO
        return helper.awaitFuture(builder.build())

    def owning(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work`, which changes files, while the stream is this driver's."""
        return self._owned(work)

    def write(self, name: str, text: str) -> None:
        """Write a file atomically, through a temporary one beside it."""
        self._owned(partial(self._write, name, text))

    @cached_property
    def _store(self) -> Any:
        """What writes a file on an object store in one request; None elsewhere."""
        if not needs_manager(self.location):
            return None
        manager = self._jvm.holdfast.checkpoint.ConditionalCheckpointFileManager
        return manager(self._root, self._configuration)

    def _put(self, name: str, text: str, *, overwrite: bool) -> None:
        stream = self._store.createAtomic(self._path(name), overwrite)
        stream.write(bytearray(text.encode()))
        stream.close()

    def _write(self, name: str, text: str) -> None:
        if self._store is not None:
            self._put(name, text, overwrite=True)
            return
        part = self._written_part(name, text)
        self._system.delete(self._path(name), False)
        if not self._system.rename(part, self._path(name)):
            raise OSError(f"{name} in {self.checkpoint} cannot be written")

    def replace(self, name: str, text: str) -> None:
        """Replace a file of Spark atomically."""
        self._owned(partial(self._replace, name, text), take_free=True)

    def _replace(self, name: str, text: str) -> None:
        if self._store is not None:
            self._put(name, text, overwrite=True)
            return
        part = self._written_part(name, text)
        # Hadoop renames a file and then its checksum: one of the old content must not be left
        # between the two. A file without a checksum is read.
        self._system.delete(self._path(_checksum(name)), False)
        failpoint("K2")
        self._rename(part, name, overwrite=True)

    def create(self, name: str, text: str) -> None:
        """Write a file that does not exist; raises FileExistsError where it does."""
        self._owned(partial(self._create, name, text))

    def _create(self, name: str, text: str) -> None:
        draft = _hidden(name, f"{uuid4()}.tmp")
        part = None if self._store is not None else self._written_part(name, text, draft)
        try:
            if part is None:
                self._put(name, text, overwrite=False)
            elif self.is_local:
                self._link(draft, name)
            else:
                self._rename(part, name, overwrite=False)
        except Py4JJavaError as error:
            if _kind(error) == "FileAlreadyExistsException":
                raise FileExistsError(f"{name} in {self.checkpoint} exists") from error
            raise
        finally:
            if part is not None:
                self._system.delete(part, False)

    def _link(self, draft: str, name: str) -> None:
        """Give a file on a local disk its name; a rename there replaces one that came meanwhile."""
        written, new = (str(self._system.pathToFile(self._path(each))) for each in (draft, name))
        try:
            os.link(written, new)
        except FileExistsError:
            raise
        except OSError as error:
            raise CommandError(
                f"{new} cannot get its name by a hard link ({error.strerror}): without hard links,"
                " one of two drivers can replace the plan of the other. Nothing was started; name a"
                " --checkpoint on a file system that has them.",
                code="checkpoint_without_links",
            ) from error
        ours, its = (self._path(_checksum(each)) for each in (draft, name))
        raw = self._system.getRawFileSystem()
        # A newer driver may have removed the file meanwhile, and written its own with its checksum.
        if Path(new).exists() and Path(new).samefile(written):
            raw.rename(ours, its)
        else:
            raw.delete(ours, False)

    def _written_part(self, name: str, text: str, draft: str | None = None) -> Any:
        part = self._path(draft or _part(name))
        stream = self._system.create(part, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        return part

    def _rename(self, part: Any, name: str, *, overwrite: bool) -> None:
        self._rename_path(part, self._path(name), overwrite=overwrite)

    def _rename_path(self, part: Any, place: Any, *, overwrite: bool) -> None:
        fs = self._jvm.org.apache.hadoop.fs
        rename = fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE if overwrite else rename.NONE
        context = fs.FileContext.getFileContext(self._system.getUri(), self._configuration)
        context.rename(part, place, options)

    def make_folder(self, name: str) -> None:
        """Make a folder, unless it exists."""
        self._system.mkdirs(self._path(name))

    def read_json(self, name: str, version: int) -> dict[str, Any] | None:
        """Return the content of one of Holdfast's own files; None where there is none.

        Raises CommandError when it is damaged or of a newer version.
        """
        text = self.read(name)
        if text is None and self._store is None:
            # The process ended between the last two steps of `write`.
            text = self.read(_part(name))
        return None if text is None else parse(text, name, version, self.checkpoint)

    def query_id(self) -> UUID:
        """Return the checkpoint's query id; a new checkpoint gets one here.

        Spark would create one too, but only when the query starts: too late to check first whether
        the stream has adopted it. Raises CommandError when it is missing and Spark has planned or
        recorded a batch.
        """
        text = self.read("metadata")
        if text is None and (self.batches("offsets") or self.batches("commits")):
            raise self.missing("metadata")
        if text is None:
            text = json.dumps({"id": str(uuid4())}, separators=(",", ":"))
            try:
                self.create("metadata", text)
            except FileExistsError:
                text = self.read("metadata") or ""  # another driver's, which began meanwhile
        try:
            return UUID(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise self.damaged("metadata") from error

    def planned(self) -> Planned | None:
        """Return the newest batch that Spark planned, whether or not it ran."""
        newest = max(self.batches("offsets"), default=None)
        if newest is None:
            return None
        name = f"offsets/{newest}"
        try:
            _, described, first, *others = (self.read(name) or "").splitlines()
            watermark_ms = json.loads(described)["batchWatermarkMs"]
            return Planned(newest, int(watermark_ms) * MILLISECOND_US, (first, *others))
        except (ValueError, KeyError, TypeError) as error:
            raise self.damaged(name) from error

    def plan_sources(self, count: int) -> None:
        """Give the plans that Spark reads at a start a line for each of `count` sources.

        A source without one had no offset. Spark reads the newest two, and refuses a plan with
        fewer lines than sources. Can be repeated after a crash.
        """
        for batch_id in sorted(self.batches("offsets"))[-2:]:
            name = f"offsets/{batch_id}"
            lines = (self.read(name) or "").splitlines()
            missing = count + 2 - len(lines)
            if missing > 0:
                self.replace(name, "\n".join([*lines, *[NO_OFFSET] * missing]))

    def committed(self) -> int | None:
        """Return the newest batch that Spark has recorded as done."""
        newest = max(self.batches("commits"), default=None)
        if newest is not None:
            # Spark reads it at its start, and would retry for ever when it is damaged.
            self.read(f"commits/{newest}")
        return newest

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none where the folder does not exist."""
        try:
            found = self._system.listStatus(self._path(folder))
        except Py4JJavaError as error:
            if _kind(error) == "FileNotFoundException":
                return []
            raise
        return [str(status.getPath().getName()) for status in found]

    def remove(self, name: str) -> None:
        """Remove a file, with its checksum."""
        self._remove(name, recursive=False)

    def remove_folder(self, name: str) -> None:
        """Remove a folder with everything in it."""
        self._remove(name, recursive=True)

    def _remove(self, name: str, *, recursive: bool) -> None:
        path = self._path(name)
        if self._system.exists(path):
            self._owned(partial(self._system.delete, path, recursive), take_free=True)

    def clear(self, *keep: str) -> None:
        """Remove everything in the checkpoint except the named files and their checksums."""
        kept = {*keep, *(f".{name}.crc" for name in keep)}
        for name in self.names("."):
            if name not in kept:
                self._remove(name, recursive=True)

    def batches(self, folder: str) -> list[int]:
        """Return the batch ids for which a folder has a file."""
        return [int(name) for name in self.names(folder) if is_whole(name)]

    def damaged(self, name: str) -> CommandError:
        """Return the error of a damaged file."""
        return CommandError(
            f"{name} in the checkpoint {self.checkpoint} cannot be read. {RESTORE}.",
            code="checkpoint_damaged",
        )

    def missing(self, name: str) -> CommandError:
        """Return the error of a missing file that every checkpoint with a batch has."""
        return CommandError(
            f"the checkpoint {self.checkpoint} has written batches, but {name} is missing in it."
            f" {RESTORE}.",
            code="checkpoint_damaged",
        )

    def path_exists(self, path: str) -> bool:
        """Return whether another path exists, or for a pattern, whether it matches anything."""
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        matches = place.getFileSystem(self._configuration).globStatus(place)
        return bool(matches)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)


def _kind(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())


def _part(name: str) -> str:
    return _hidden(name, "part")


def _checksum(name: str) -> str:
    return _hidden(name, "crc")


def _hidden(name: str, kind: str) -> str:
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.{kind}"


def parse(text: str, name: str, version: int, checkpoint: str) -> dict[str, Any]:
    """Return the content of one of Holdfast's files, of `version` or older.

    Raises CommandError when it is damaged or newer.
    """
    try:
        kept = json.loads(text)
    except ValueError:
        kept = None
    if not isinstance(kept, dict) or not isinstance(kept.get("version"), int):
        raise CommandError(
            f"{name} in the checkpoint {checkpoint} cannot be read. {RESTORE}.",
            code="checkpoint_damaged",
        )
    if kept["version"] > version:
        raise CommandError(
            f"the checkpoint {checkpoint} was written by a newer Holdfast. Nothing was read or"
            " written; run that version.",
            code="checkpoint_version_mismatch",
        )
    return kept
