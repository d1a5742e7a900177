"""All files of a checkpoint where they lie: on a local path, or through Hadoop anywhere else.

A name is relative to the checkpoint, with `/`. Files whose own name begins with a dot are not
listed: they are checksums of Hadoop, and what is being written.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple, Protocol, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.sink.contract.checkpoint import local_folder, needs_manager
from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.checksums import damaged_beside, hadoop_file, hadoop_sums
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.input.source import absolute, local
from holdfast.spark_app.lifecycle.failure import diagnose, one_line
from holdfast.spark_app.runtime.engine import start_quietly
from holdfast.spark_app.runtime.java import require_java
from holdfast.spark_app.runtime.launch import Launch, launched_by_spark_submit

READERS = 16
"""Files that are read at once where each read waits for a network."""

_Result = TypeVar("_Result")


class Stat(NamedTuple):
    """Size in bytes, and time of the last change in seconds."""

    size: int
    changed_at: float


class Tree(Protocol):
    """The files of one checkpoint."""

    readers: int
    """Number of files that are worth reading at once."""
    page: int
    """Number of files that one call removes."""

    @property
    def location(self) -> str:
        """The place, as a person names it."""

    @property
    def spark(self) -> SparkSession | None:
        """The session through which it is read, if there is one."""

    def files(self) -> dict[str, Stat]:
        """Return every file, in the order of the names."""

    def folders(self) -> list[str]:
        """Return the names of the folders in it."""

    def content(self, name: str) -> bytes:
        """Return the content of a file; raises OSError."""

    def hadoop_sums(self, name: str) -> bytes | None:
        """Return Hadoop's checksum file of a file, None where there is none."""

    def damaged_sums(self, name: str, content: bytes) -> set[str]:
        """Return the names of the checksum files of an intact file that are damaged."""

    def put(self, name: str, text: str) -> None:
        """Write a file, or replace it, as a whole."""

    def move(self, name: str, to: str) -> None:
        """Move a file to another name, with its checksum. Does nothing where it was moved."""

    def remove_files(self, names: Sequence[str]) -> None:
        """Remove files, with their checksums; those that are gone do not matter."""

    def remove_folder(self, name: str) -> None:
        """Remove a folder with everything in it."""

    def remove_orphaned_sums(self) -> None:
        """Remove checksums of files that are lost: Spark would not write such a file again."""

    def has_input(self, path: str) -> bool:
        """Return whether a file that the job reads is there; a path, or a URI."""


@contextmanager
def tree_of(checkpoint: str, launch: Launch) -> Iterator[Tree]:
    """Yield the files of a checkpoint; Spark starts where they are not on a local path.

    Raises CommandError where the file system does not answer.
    """
    location = absolute(checkpoint)
    if local_folder(location) is not None:
        yield LocalTree(location)
        return
    if not launched_by_spark_submit():
        require_java()
    spark = start_quietly("holdfast checkpoints", launch)
    try:
        yield _answering(location, lambda: RemoteTree(spark, location))
    finally:
        # A JVM that has died was reported already.
        with suppress(Py4JError, OSError):
            spark.stop()


class LocalTree:
    """On a local path."""

    readers = 1
    page = 1
    spark = None

    def __init__(self, checkpoint: str) -> None:
        path = local_folder(absolute(checkpoint))
        if path is None:
            raise ValueError(f"{checkpoint} is not on a local path")
        self._path = path
        self.location = str(path)

    def files(self) -> dict[str, Stat]:
        return {
            str(file.relative_to(self._path)): stat
            for file in sorted(self._path.rglob("*"))
            if not file.name.startswith(".") and (stat := _stat(file)) is not None
        }

    def folders(self) -> list[str]:
        return [each.name for each in self._path.iterdir() if each.is_dir()]

    def content(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def hadoop_sums(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return hadoop_file(self._path / name).read_bytes()
        return None

    def damaged_sums(self, name: str, content: bytes) -> set[str]:
        damaged = damaged_beside(self._path / name, content)
        return {str(file.relative_to(self._path)) for file in damaged}

    def put(self, name: str, text: str) -> None:
        """Also make it durable, and write Hadoop's checksum of it."""
        file, content = self._path / name, text.encode()
        file.parent.mkdir(parents=True, exist_ok=True)
        # Without one, Hadoop checks nothing; with that of the old content, it refuses the new one.
        hadoop_file(file).unlink(missing_ok=True)
        part = file.with_name(f".{file.name}.part")
        with part.open("wb") as written:
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
        part.replace(file)
        hadoop_file(file).write_bytes(hadoop_sums(content))

    def move(self, name: str, to: str) -> None:
        source, target = self._path / name, self._path / to
        for each, place in ((source, target), (hadoop_file(source), hadoop_file(target))):
            if each.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                each.replace(place)

    def remove_files(self, names: Sequence[str]) -> None:
        for name in names:
            (self._path / name).unlink(missing_ok=True)
            hadoop_file(self._path / name).unlink(missing_ok=True)

    def remove_folder(self, name: str) -> None:
        shutil.rmtree(self._path / name)

    def remove_orphaned_sums(self) -> None:
        for pattern in ("offsets/.*.crc", "commits/.*.crc", "sources/*/.*.crc"):
            for sums in self._path.glob(pattern):
                if not sums.with_name(sums.name[1:].removesuffix(".crc")).exists():
                    sums.unlink()

    def has_input(self, path: str) -> bool:
        file = local(path)
        return file is None or file.exists()


def _stat(file: Path) -> Stat | None:
    """Return the size and time of a file; None for a folder, and for what has just been removed."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return None
    return Stat(stat.st_size, stat.st_mtime) if S_ISREG(stat.st_mode) else None


class RemoteTree(CheckpointFiles):
    """Through Hadoop, on any file system that Spark supports; it compares checksums itself.

    Other errors than those of a single file raise CommandError.
    """

    readers = READERS

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        super().__init__(spark, checkpoint)
        self.spark = spark
        self._folders: set[str] = set()
        """Those that were made here."""
        self._statuses: dict[str, Any] = {}
        """What the last listing has of each file: with it, a store is not asked again."""
        bulk = self._system.createBulkDelete(self._root)
        self.page = int(bulk.pageSize())
        bulk.close()

    def files(self) -> dict[str, Stat]:
        files = self._answer(lambda: sorted(self._listed()))
        return dict(files)

    def _listed(self) -> Iterator[tuple[str, Stat]]:
        """Yield every file. A store lists all folders together, page by page."""
        if not self._system.exists(self._root):
            return
        root = f"{self.location.rstrip('/')}/"
        files = self._system.listFiles(self._root, True)
        while files.hasNext():
            status = files.next()
            name = str(status.getPath().toString()).removeprefix(root)
            if not name.rpartition("/")[2].startswith("."):
                self._statuses[name] = status
                yield name, Stat(status.getLen(), status.getModificationTime() / 1000)

    def folders(self) -> list[str]:
        return self._answer(
            lambda: [
                str(status.getPath().getName())
                for status in self._system.listStatus(self._root)
                if status.isDirectory()
            ]
        )

    def content(self, name: str) -> bytes:
        """Return the content of a file.

        Raises OSError for one that is gone, or of which no intact copy is left.
        """
        return self._answer(lambda: self._content(name))

    def _content(self, name: str) -> bytes:
        status = self._statuses.get(name)
        try:
            return self._bytes(name, status)
        except Py4JJavaError as error:
            changed = _class_of(error) == "RemoteFileChangedException"
            if status is None or not changed:
                raise
            return self._bytes(name, None)  # it was replaced since

    def _bytes(self, name: str, status: Any) -> bytes:
        builder = self._system.openFile(self._path(name))
        if status is not None:
            builder.withFileStatus(status)
        stream = self._opened_by(builder)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def hadoop_sums(self, name: str) -> bytes | None:  # noqa: ARG002 - as `Tree`
        return None

    def damaged_sums(self, name: str, content: bytes) -> set[str]:  # noqa: ARG002 - as `Tree`
        return set()

    def put(self, name: str, text: str) -> None:
        self._statuses.pop(name, None)
        # A store shows a file when it is closed, and then the whole of it.
        is_store = needs_manager(self.location)
        self._answer(
            lambda: self._written_part(name, text, name) if is_store else self._replace(name, text)
        )

    def move(self, name: str, to: str) -> None:
        """Move a file; a store copies it by itself. Repeated, it ends what a crash has left."""
        self._answer(lambda: self._move(name, to))

    def _move(self, name: str, to: str) -> None:
        source, target = self._path(name), self._path(to)
        folder = to.rpartition("/")[0]
        if folder not in self._folders:
            self._system.mkdirs(self._path(folder))
            self._folders.add(folder)
        if self._renamed(source, target) or not self._system.exists(source):
            return
        # A store copies, and then deletes: a crash between the two has left both.
        self._system.delete(target, False)
        if not self._renamed(source, target):
            raise OSError(f"{name} in {self.checkpoint} cannot be moved to {to}")

    def _renamed(self, source: Any, target: Any) -> bool:
        """Rename a file; return False where it is not there, or the other name is taken."""
        try:
            return bool(self._system.rename(source, target))
        except Py4JJavaError as error:
            if _class_of(error) not in ("FileNotFoundException", "FileAlreadyExistsException"):
                raise
            return False

    def remove_files(self, names: Sequence[str]) -> None:
        self._answer(lambda: self._remove_files(names))

    def _remove_files(self, names: Sequence[str]) -> None:
        bulk = self._system.createBulkDelete(self._root)
        try:
            for first in range(0, len(names), self.page):
                paths = self._jvm.java.util.ArrayList()
                for name in names[first : first + self.page]:
                    paths.add(self._path(name))
                failed = bulk.bulkDelete(paths)
                if not failed.isEmpty():
                    raise OSError(f"{failed.size()} files cannot be removed: {failed.get(0)}")
        finally:
            bulk.close()

    def remove_folder(self, name: str) -> None:
        self._answer(lambda: self._system.delete(self._path(name), True))

    def remove_orphaned_sums(self) -> None:
        """Do nothing: there are none."""

    def has_input(self, path: str) -> bool:
        def exists() -> bool:
            place = self._jvm.org.apache.hadoop.fs.Path(path)
            return bool(place.getFileSystem(self._configuration).exists(place))

        return self._answer(exists)

    def _answer(self, ask: Callable[[], _Result]) -> _Result:
        return _answering(self.checkpoint, ask)


_OF_A_FILE = ("FileNotFoundException", "ChecksumException", "BlockMissingException")
"""Errors of one file, by the class's name; all others are those of the file system."""


def _class_of(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())


def _answering(checkpoint: str, ask: Callable[[], _Result]) -> _Result:
    """Return the result; an error of a file raises OSError, any other one CommandError."""
    try:
        return ask()
    except Py4JJavaError as error:
        thrown = error.java_exception
        if (name := _class_of(error)) in _OF_A_FILE:
            raise OSError(None, one_line(f"{name}: {thrown.getMessage()}")) from error
        said = one_line(str(thrown.toString()))
    except (PySparkException, Py4JError, ConnectionError) as error:
        said = diagnose(error).said
    raise CommandError(
        f"the file system of {checkpoint} does not do what was asked of it: {said.rstrip('.')}."
        " Repeat the command when it answers: what was done stays, and the rest is done then.",
        code="file_system_failed",
    )
