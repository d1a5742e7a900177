"""The savepoints of one stream in a directory: list them, verify them, keep the newest.

`job run --savepoint-every` writes each in a directory of its own, named by its time in UTC:
`20261129T101500Z`. What has another name is never touched.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.savepoint import manifest
from holdfast.spark_app.savepoint.folder import PART, SavepointFolder
from holdfast.spark_app.savepoint.manifest import Manifest

_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_LEFTOVER: Final = re.compile(rf"({_NAME.pattern})(\.[0-9a-f]{{8}}{re.escape(PART)})?", re.ASCII)
_LEFT: Final = timedelta(days=1)
"""Whatever is older than that is written by nobody any more."""


class Kept(NamedTuple):
    """A savepoint in the directory."""

    name: str
    manifest: Manifest | None
    """None where it cannot be read."""
    problem: str | None
    """Why it cannot be read."""


def name_of(moment: datetime) -> str:
    """Return the name of the savepoint of a moment."""
    return moment.astimezone(UTC).strftime(_FORMAT)


def moment_of(name: str) -> datetime:
    """Return the moment of a savepoint's name."""
    return datetime.strptime(name, _FORMAT).replace(tzinfo=UTC)


class Shelf:
    """The directory; it need not exist yet."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self.place = place.rstrip("/")
        self.spark = spark
        self._files = CheckpointFiles(spark, self.place)

    def where(self, name: str) -> str:
        """Return the place of a savepoint."""
        return f"{self.place}/{name}"

    def kept(self, stream: str | None = None) -> Iterator[Kept]:
        """Yield the savepoints, the newest first, with the manifest of each.

        Of one stream, those whose manifest cannot be read are not known to be, and are left out.
        """
        names = sorted((n for n in self._files.names(".") if _NAME.fullmatch(n)), reverse=True)
        for name in names:
            try:
                text = SavepointFolder(self.spark, self.where(name)).read(manifest.FILE)
                if text is None:
                    continue  # it is being written, or was left by a process that was killed
                found = Manifest.from_json(text, self.where(name))
            except CommandError as error:
                if stream is None:
                    yield Kept(name, None, str(error))
                continue
            if stream in (None, found.stream):
                yield Kept(name, found, None)

    def problem(self, kept: Kept) -> str | None:
        """Read every file of a savepoint; return what is wrong, None where it is intact."""
        if kept.manifest is None:
            return kept.problem
        folder = SavepointFolder(self.spark, self.where(kept.name), kept.manifest.folder)
        try:
            folder.verify(kept.manifest.files)
        except CommandError as error:
            return str(error)
        return None

    def prune(self, stream: str, keep: int, intact: str | None = None) -> list[str]:
        """Remove all but the newest savepoints of a stream; return the names of those removed.

        The newest intact one stays, also where it is older; where none is intact, all stay.
        `intact` is one that was read back just now.
        """
        kept = list(self.kept(stream))
        surplus = kept[keep:]
        if not surplus:
            return []
        self._remove_leftovers(kept[keep - 1].name)
        if intact not in {each.name for each in kept[:keep]}:
            newest = next((each for each in kept if self.problem(each) is None), None)
            if newest is None:
                return []
            surplus = [each for each in surplus if each.name != newest.name]
        for each in reversed(surplus):
            SavepointFolder(self.spark, self.where(each.name)).remove_published()
        return [each.name for each in surplus]

    def _remove_leftovers(self, before: str) -> None:
        """Remove what killed processes have left a day before a savepoint, or earlier."""
        until = name_of(moment_of(before) - _LEFT)
        for name in self._files.names("."):
            match = _LEFTOVER.fullmatch(name)
            if match is None or match[1] >= until:
                continue
            folder = SavepointFolder(self.spark, self.where(name))
            if match[2] or folder.read(manifest.FILE) is None:
                folder.remove_published()


def described(kept: Kept, problem: str | None) -> dict[str, Any]:
    """Return a savepoint as `--json` prints it."""
    found = kept.manifest
    return {
        "savepoint": kept.name,
        "stream": found.stream if found else None,
        "query_id": found.query_id if found else None,
        "batch_id": found.batch_id if found else None,
        "created_at": found.created_at if found else None,
        "bytes": sum(file.bytes for file in found.files) if found else None,
        "problem": problem,
    }
