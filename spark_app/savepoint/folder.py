"""A savepoint's folder, on any file system that Spark supports.

It gets its place in one step, which fails where the place is taken. A local disk and HDFS rename
the folder that was written beside it. On an object store a folder has no name that could be given:
the files are written in a folder of their own inside, and the manifest, which names that folder,
is created only where there is none.
"""

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from holdfast.sink.contract.checkpoint import local_folder, refusal, scheme_of
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint.files import CONDITIONAL_CREATE, CheckpointFiles
from holdfast.spark_app.input.source import PATTERN
from holdfast.spark_app.lifecycle.failure import one_line
from holdfast.spark_app.savepoint import manifest
from holdfast.spark_app.savepoint.manifest import File, Manifest

PART = ".part"
"""The end of the name of a folder that is being written."""

FILES = "files-"
"""The beginning of the name of a folder that is written inside the savepoint's place."""

IN_PLACE: Final = frozenset({"s3a", "gs"})
"""The schemes of object stores that can create a file only where there is none."""

GOOGLES: Final = "gs"

STALE_SECONDS: Final = 60
"""Age from which a folder that no process holds was left by one that was killed. A younger one may
be about to be held."""


def require_safe(place: str) -> None:
    """Raise CommandError for a place that a savepoint cannot take in one step."""
    if scheme_of(place) not in IN_PLACE and (why := refusal(place)) is not None:
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

    def __init__(self, spark: SparkSession, place: str, inside: str = "") -> None:
        """`inside` is where the files lie, as `Manifest.folder`."""
        super().__init__(spark, place)
        self.spark = spark
        self.inside = inside
        self.is_published = False
        self._held: int | None = None
        """Open while this process writes the folder, on a local path."""

    @property
    def root(self) -> Any:
        """The folder as Hadoop's path."""
        return self._root

    @cached_property
    def is_object_store(self) -> bool:
        """Whether the files are written in their place, and the manifest is created at last."""
        if scheme_of(self.location) == GOOGLES:
            return True  # its client does not say so
        return bool(self._system.hasPathCapability(self._root, CONDITIONAL_CREATE))

    @property
    def exists(self) -> bool:
        """Whether there is anything at the place of the savepoint."""
        if not self.is_object_store:
            return bool(self._system.exists(self._root))
        # Not what a killed process has left.
        return any(not name.startswith(FILES) for name in self.names("."))

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
        found = Manifest.from_json(text, self.checkpoint)
        self.inside = found.folder
        return found

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
        try:
            status = self._system.getFileStatus(path)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
                return None
            raise
        digest = self._jvm.org.apache.commons.codec.digest.DigestUtils
        # With its status, an object store is not asked for it again.
        builder = self._system.openFile(path)
        builder.withFileStatus(status)
        stream = self._opened_by(builder)
        try:
            sha256 = str(digest.sha256Hex(stream))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "ChecksumException":
                raise self.damaged(name) from error
            raise
        finally:
            stream.close()
        return File(name, int(status.getLen()), sha256)

    def visible(self) -> Iterator[str]:
        """Yield the path of each file, in order, without checksums and temporary files."""
        for folder in ("windows", "merchants", "ids", "sources"):
            for name in sorted(self.names(folder)):
                if not name.startswith((".", "_")):
                    yield f"{folder}/{name}"

    def prepare(self) -> "SavepointFolder":
        """Return an empty folder beside the savepoint's place, or inside, in which it is written.

        Of its own for each call: two that write to one place never mix their files. Those of killed
        processes are removed, on a local path. Raises CommandError when the place is taken.
        """
        self.require_free()
        if self.is_object_store:
            return type(self)(self.spark, self.checkpoint, f"{FILES}{uuid4().hex[:8]}/")
        place = local_folder(self.location)
        if place is not None:
            _remove_stale(place)
        part = type(self)(self.spark, f"{self.checkpoint.rstrip('/')}.{uuid4().hex[:8]}{PART}")
        self._system.mkdirs(part.root)
        if (folder := local_folder(part.location)) is not None:
            part.hold(folder)
        return part

    def hold(self, folder: Path) -> None:
        """Show other processes that this one writes the folder, until `discard` or its death."""
        self._held = os.open(folder, os.O_RDONLY)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def require_free(self) -> None:
        """Raise CommandError when there is something at the place, or it cannot be taken."""
        require_safe(self.location)
        if scheme_of(self.location) in IN_PLACE:
            self._require_conditional_create()
        if self.exists:
            raise taken(self.checkpoint)

    def _require_conditional_create(self) -> None:
        why = None
        if not self.is_object_store:
            why = (
                "the client of its store cannot create a file only where there is none. S3 needs"
                " hadoop-aws 3.4.2 or newer, with fs.s3a.create.conditional.enabled=true"
            )
        elif not callable(self._jvm.holdfast.checkpoint.ConditionalCheckpointFileManager):
            why = (
                "this installation was built without holdfast-checkpoint.jar, or spark-submit was"
                " not given it with --jars"
            )
        if why is not None:
            raise CommandError(
                f"{self.checkpoint} cannot take a savepoint: {why}. Nothing was written.",
                ExitCode.USAGE,
                code="invalid_place",
            )

    def discard(self) -> None:
        """Remove what was written, unless it was published, and let it go."""
        if not self.is_published:
            inside = self.inside.rstrip("/")
            self._system.delete(self._hadoop_path(inside) if inside else self._root, True)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def remove_published(self) -> None:
        """Remove a savepoint, the manifest first: what is left after a crash is no savepoint."""
        self._system.delete(self._path(manifest.FILE), False)
        self._system.delete(self._root, True)

    def publish(self, part: "SavepointFolder", found: Manifest) -> Manifest:
        """Give the files of `part` their place, in one step; return the manifest as it is there.

        Raises CommandError where the place was taken since.
        """
        if self.is_object_store:
            return self._create_manifest(part, replace(found, folder=part.inside))
        part.write(manifest.FILE, found.to_json())
        written, place = local_folder(part.location), local_folder(self.location)
        if written is not None and place is not None:
            _sync(written)
            self._take_name(written, place)
        else:
            self._take_path(part)
        part.is_published = True
        return found

    def _take_name(self, written: Path, place: Path) -> None:
        # Hadoop's rename moves a folder into one that has come meanwhile, and reports success.
        try:
            written.rename(place)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise taken(self.checkpoint) from error
            raise
        _sync_one(place.parent)

    def _take_path(self, part: "SavepointFolder") -> None:
        try:
            self._rename_path(part.root, self.root, overwrite=False)
        except Py4JJavaError as error:
            if _is_taken(error):
                raise taken(self.checkpoint) from error
            raise

    def _create_manifest(self, part: "SavepointFolder", found: Manifest) -> Manifest:
        # Also where the answer is lost: the manifest that names the files may be there.
        part.is_published = True
        try:
            self.create(manifest.FILE, found.to_json())
        except FileExistsError as error:
            part.is_published = False
            raise taken(self.checkpoint) from error
        except Py4JJavaError as error:
            raise CommandError(
                f"whether the savepoint {self.checkpoint} was written is not known:"
                f" {one_line(str(error.java_exception.toString()))}. It is whole if there is a"
                f" {manifest.FILE} in it, and the checkpoint was only read; look, or write another"
                " one with --to.",
                code="savepoint_unknown",
            ) from error
        return found

    def _write(self, name: str, text: str) -> None:
        # Nobody else writes this folder, and nobody reads it before it has its place.
        self._written_part(name, text, name)

    def _path(self, name: str) -> Any:
        return self._hadoop_path(name if name == manifest.FILE else f"{self.inside}{name}")

    def _hadoop_path(self, name: str) -> Any:
        return super()._path(name)

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


def taken(place: str) -> CommandError:
    """Return the error of a place at which there is something already."""
    return CommandError(
        f"{place} exists already. Nothing was written; a savepoint is never replaced: name another"
        " directory with --to.",
        ExitCode.USAGE,
        code="savepoint_exists",
    )


def _is_taken(error: Py4JJavaError) -> bool:
    return bool(error.java_exception.getClass().getSimpleName() == "FileAlreadyExistsException")


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
