"""Names of event files that Spark cannot read, by a listing of our own.

Java decodes names by the locale in which it was started, and Spark's list leaves out a file whose
name it cannot decode, without a word: it would never be read. So names are compared as bytes, at
each start and while the job runs. What a start refuses is a name; the events in it are not lost.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from holdfast.spark_app.input.source import local

UTF_8: Final = "utf-8"

_PAUSE_SECONDS: Final = 5.0
_SHARE: Final = 0.01
"""Of the time, for listing."""


class UnreadableName(Exception):
    """A file is in a directory of events under a name that Spark cannot read."""


class Unreadable(NamedTuple):
    """A file or a directory that is not read, and why."""

    place: bytes
    reason: str


def unreadable(folder: bytes, encoding: str = UTF_8) -> Iterator[Unreadable]:
    """Yield what Spark cannot read in a directory and those in it; `encoding` is that of Java.

    Nothing of a directory that is gone or may not be listed: Spark itself reports that.
    """
    seen: set[tuple[int, int]] = set()
    folders = [folder]
    while folders:
        at = folders.pop()
        with suppress(OSError):
            status = os.stat(at)  # noqa: PTH116 - names are bytes
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(at) as entries:
                for entry in entries:
                    if is_skipped(entry.name):
                        continue
                    is_folder = entry.is_dir()
                    reason = _reason(entry.name, encoding, is_folder=is_folder)
                    if reason is not None:
                        yield Unreadable(entry.path, reason)
                    elif is_folder:
                        folders.append(entry.path)


def is_skipped(name: bytes) -> bool:
    """Return whether Spark takes a name for that of a file that is not complete, or is its own."""
    return (
        name.startswith(b".")
        or (name.startswith(b"_") and b"=" not in name)
        or name.endswith(b"._COPYING_")
    )


def _reason(name: bytes, encoding: str, *, is_folder: bool) -> str | None:
    if name.isascii() and b":" not in name:
        return None
    try:
        name.decode(UTF_8)
    except UnicodeDecodeError:
        return "its name is not UTF-8: rename it"
    if not _decodes(name, encoding):
        return (
            f"Spark's Java reads names as {encoding}, and this one is not: start the process that"
            " starts Java with LC_ALL=C.UTF-8"
        )
    if b":" in name and not is_folder:
        return "its name has a colon, with which Hadoop cannot name a checksum file: rename it"
    return None


def _decodes(name: bytes, encoding: str) -> bool:
    try:
        name.decode(encoding)
    except (LookupError, UnicodeDecodeError):
        return name.isascii()
    return True


class FileNames:
    """The names in a job's directories of events, on local paths."""

    def __init__(self, spark: SparkSession, paths: Sequence[str]) -> None:
        context: Any = spark.sparkContext
        system = context._jvm.System  # noqa: SLF001 - PySpark has no public way to Java's properties
        self._encoding = str(system.getProperty("sun.jnu.encoding"))
        self._folders = [os.fsencode(folder) for folder in map(local, paths) if folder is not None]
        self._next = 0.0

    def require(self) -> None:
        """Raise UnreadableName for a name that Spark cannot read."""
        began = time.monotonic()
        found = [each for folder in self._folders for each in unreadable(folder, self._encoding)]
        if found:
            raise UnreadableName(describe(found))
        ended = time.monotonic()
        self._next = ended + max(_PAUSE_SECONDS, (ended - began) / _SHARE)

    def require_in_time(self) -> None:
        """Do as `require`, unless it was done just before."""
        if time.monotonic() >= self._next:
            self.require()


def describe(found: Sequence[Unreadable]) -> str:
    """Return which names cannot be read, what was not lost, and what to do."""
    first, *others = found
    more = f" (and {len(others)} more)" if others else ""
    return (
        f"{_shown(first.place)}{more} cannot be read: {first.reason}. Nothing of it was read, and"
        " nothing is lost; start again then"
    )


def skipped(path: str) -> list[bytes]:
    """Return the names in a local directory that are not read by rule, without checksums."""
    folder = local(path)
    try:
        names = [] if folder is None else sorted(os.listdir(os.fsencode(folder)))  # noqa: PTH208 - bytes
    except OSError:
        return []
    own = (b"_SUCCESS", b"_SUCCESS.crc")
    return [n for n in names if is_skipped(n) and not n.endswith(b".crc") and n not in own]


def describe_skipped(path: str, names: Sequence[bytes]) -> str:
    """Return what a start reports of names that are not read by rule."""
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return (
        f"{_shown(names[0])}{more} in {path} is not read: a name that begins with . or _, or ends"
        " with ._COPYING_, is that of a file which is not complete"
    )


def _shown(name: bytes) -> str:
    return name.decode(UTF_8, "backslashreplace")
