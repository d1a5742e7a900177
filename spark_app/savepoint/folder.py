"""A savepoint's folder, on any file system that Spark supports."""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from holdfast.sink.contract.checkpoint import local_folder, refusal
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.input.source import PATTERN
from holdfast.spark_app.savepoint import manifest
from holdfast.spark_app.savepoint.manifest import File, Manifest

PART = ".part"
"""The end of the name of a folder that is being written."""

STALE_SECONDS: Final = 60
"""Age from which a folder that no process holds was left by one that was killed. A younger one may
be about to be held."""


def require_safe(place: str) -> None:
    """Raise CommandError for an object store: a savepoint gets its place by one rename."""
    if (why := refusal(place)) is not None:
        raise CommandError(f"{why}. Nothing was written.", ExitCode.USAGE, code="invalid_place")


def require_place(place: str, option: str) -> None:
    """Raise CommandError for an empty path, and for one that Spark would read as a pattern."""
    if not place:
        raise CommandError(
            f"{option} '' names no directory. Nothing was written; name the directory of the"
            " savepoint.",
            ExitCode.USAGE,
            code="invalid_directory",
        )
    if found := PATTERN.search(place):
        raise CommandError(
            f"{option} {place} holds {found[0]!r}, and Spark reads a path with one of []{{}}*?\\ as"
            " a pattern. Nothing was written; name another directory.",
            ExitCode.USAGE,
            code="invalid_directory",
        )


class SavepointFolder(CheckpointFiles):
    """The files of one savepoint, which need not exist yet."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        super().__init__(spark, place)
        self.spark = spark
        self._held: int | None = None
        """Open while this process writes the folder, on a local path."""

    @property
    def root(self) -> Any:
        """The folder as Hadoop's path."""
        return self._root

    @property
    def exists(self) -> bool:
        """Whether there is anything at the place of the savepoint."""
        return bool(self._system.exists(self._root))

    def manifest(self) -> Manifest:
        """Read the manifest.

        Raises CommandError for a folder without one, a damaged one, and one of a newer version.
        """
        text = self.read(manifest.FILE)
        if text is None:
            raise CommandError(
                f"{self.checkpoint} is not a savepoint: there is no {manifest.FILE} in it. Nothing"
                " was changed; pass the directory of `job savepoint --to`.",
                ExitCode.USAGE,
                code="not_a_savepoint",
            )
        return Manifest.from_json(text, self.checkpoint)

    def verify(self, files: list[File]) -> None:
        """Raise CommandError unless every file is there with its size and checksum."""
        for file in files:
            found = self.checksum(file.name)
            if found is None:
                raise self.missing(file.name)
            if (found.bytes, found.sha256) != (file.bytes, file.sha256):
                raise manifest.damaged(
                    self.checkpoint, file.name, "is not the file that was written (checksum)"
                )

    def checksum(self, name: str) -> File | None:
        """Return a file's size and checksum; None where there is none.

        Raises CommandError when Hadoop's own checksum does not match.
        """
        path = self._path(name)
        if not self._system.exists(path):
            return None
        digest = self._jvm.org.apache.commons.codec.digest.DigestUtils
        stream = self._system.open(path)
        try:
            sha256 = str(digest.sha256Hex(stream))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "ChecksumException":
                raise self.damaged(name) from error
            raise
        finally:
            stream.close()
        return File(name, int(self._system.getFileStatus(path).getLen()), sha256)

    def visible(self) -> Iterator[str]:
        """Yield the path of each file, in order, without checksums and temporary files."""
        for folder in ("windows", "merchants", "ids", "sources"):
            for name in sorted(self.names(folder)):
                if not name.startswith((".", "_")):
                    yield f"{folder}/{name}"

    def prepare(self) -> "SavepointFolder":
        """Return an empty folder beside the savepoint's place, in which it is written.

        Of its own for each call: two that write to one place never mix their files. Those of killed
        processes are removed, on a local path. Raises CommandError when the place is taken.
        """
        self.require_free()
        place = local_folder(self.location)
        if place is not None:
            _remove_stale(place)
        part = type(self)(self.spark, f"{self.checkpoint.rstrip('/')}.{uuid4().hex[:8]}{PART}")
        self._system.mkdirs(part.root)
        if (folder := local_folder(part.location)) is not None:
            part.hold(folder)
        return part

    def hold(self, folder: Path) -> None:
        """Show other processes that this one writes the folder, until `remove_all` or its death."""
        self._held = os.open(folder, os.O_RDONLY)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def require_free(self) -> None:
        """Raise CommandError when there is something at the place, or it is an object store."""
        require_safe(self.location)
        if self.exists:
            raise CommandError(
                f"{self.checkpoint} exists already. Nothing was written; a savepoint is never"
                " replaced: name another directory with --to.",
                ExitCode.USAGE,
                code="savepoint_exists",
            )

    def remove_all(self) -> None:
        """Remove the folder."""
        self._system.delete(self._root, True)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def publish(self, part: "SavepointFolder") -> None:
        """Give a complete folder its place, in one step."""
        _sync(local_folder(part.location))
        self.require_free()
        if not self._system.rename(part.root, self.root):
            raise OSError(f"{part.checkpoint} cannot be renamed")
        folder = local_folder(self.location)
        if folder is not None:
            _sync_one(folder.parent)

    def damaged(self, name: str) -> CommandError:
        """Return the error of a damaged file."""
        return manifest.damaged(self.checkpoint, name)

    def missing(self, name: str) -> CommandError:
        """Return the error of a file that the manifest names."""
        return manifest.damaged(self.checkpoint, name, "is missing")

    def paths(self, files: list[File], folder: str) -> list[str]:
        """Return the locations of the files of a table."""
        names = (file.name for file in files if file.name.startswith(f"{folder}/"))
        return [str(self._path(name).toString()) for name in names]

    def location_of(self, name: str) -> str:
        """Return the location of a file or folder in Spark."""
        return str(self._path(name).toString())


def _remove_stale(place: Path) -> None:
    """Remove the folders beside a place that killed processes have left; never one in use."""
    name = re.compile(re.escape(place.name) + r"\.[0-9a-f]{8}" + re.escape(PART))
    found = place.parent.iterdir() if place.parent.is_dir() else ()
    for folder in [each for each in found if name.fullmatch(each.name)]:
        with suppress(OSError):
            _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    """Remove a folder; raises BlockingIOError while a process writes it."""
    held: Any = os.open(folder, os.O_RDONLY)
    try:
        # The kernel releases the lock of a process that dies.
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - folder.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(folder)
    finally:
        os.close(held)


def _sync(folder: Path | None) -> None:
    """Make a folder on a local path durable."""
    if folder is None:
        return
    for path in (folder, *folder.rglob("*")):
        _sync_one(path)


def _sync_one(path: Path) -> None:
    file: Any = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
