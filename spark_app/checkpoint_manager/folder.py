"""The files of a checkpoint on a local path: which there are, and whether each is intact.

Spark is not needed for this, and a start of it takes longer than all of it. Nothing is written.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from holdfast.sink.contract.checkpoint import local_folder
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import is_whole
from holdfast.spark_app.checkpoint import initial, origin, policy_history, repeats, retention, shape
from holdfast.spark_app.checkpoint.checksums import (
    damaged_beside,
    hadoop_file,
    hadoop_problem,
    spark_file,
    spark_problem,
)
from holdfast.spark_app.checkpoint_manager import spark_files
from holdfast.spark_app.checkpoint_manager.spark_files import (
    Changelog,
    Committed,
    Name,
    Plan,
    Snapshot,
)
from holdfast.spark_app.input.source import absolute

METADATA: Final = "metadata"
REMOVED: Final = "removed-"
"""Begins the name of a folder into which a restore has moved files."""

MISSING: Final = "it is missing"

_OWN: Final = {
    shape.FILE: shape.VERSION,
    policy_history.FILE: policy_history.VERSION,
    initial.FILE: initial.VERSION,
    retention.FILE: retention.VERSION,
    origin.FILE: origin.VERSION,
    repeats.FILE: repeats.VERSION,
}

_REPEATED = re.compile(rf"{repeats.FOLDER}/[0-9]+/", re.ASCII)

_Parsed = TypeVar("_Parsed")


class Stat(NamedTuple):
    """Size in bytes, and time of the last change in seconds."""

    size: int
    changed_at: float


class Folder:
    """One checkpoint, as it is when this is made; contents are read on demand, once."""

    def __init__(self, checkpoint: str) -> None:
        """Raise CommandError unless it is a checkpoint of the job, on a local path."""
        location = absolute(checkpoint)
        path = local_folder(location)
        if path is None:
            raise CommandError(
                f"{checkpoint} is not on a local path, and `job checkpoints` reads only those."
                " Nothing was read; mount the file system, or copy the directory: `list`, `show`"
                " and `verify` work on a copy.",
                ExitCode.USAGE,
                code="checkpoint_not_local",
            )
        self.path = path
        self.files = {
            str(file.relative_to(path)): stat
            for file in sorted(path.rglob("*"))
            if not file.name.startswith(".")
            and not file.relative_to(path).parts[0].startswith(REMOVED)
            and (stat := _stat(file)) is not None
        }
        if shape.FILE not in self.files and not self.batches("offsets"):
            raise CommandError(
                f"{checkpoint} is not a checkpoint of the exposure job: there is no {shape.FILE} in"
                " it. Nothing was read; pass the --checkpoint of `job run`.",
                ExitCode.USAGE,
                code="not_a_checkpoint",
            )
        self.problem: Callable[[str], str | None] = cache(self._problem)
        """Return what is wrong with a file, None where it is intact."""
        self.unsummed: set[str] = set()
        """The intact files with a damaged checksum file, of those whose `problem` was asked for."""
        self.plan: Callable[[int], Plan | None] = cache(
            lambda batch: self._parsed(f"offsets/{batch}", spark_files.plan)
        )
        """Return the plan of a batch, None where it cannot be read."""
        self.committed: Callable[[int], Committed | None] = cache(
            lambda batch: self._parsed(f"commits/{batch}", spark_files.committed)
        )
        """Return the commit of a batch, None where it cannot be read."""

    def read(self, name: str) -> bytes:
        """Return the content of a file; raises OSError."""
        return (self.path / name).read_bytes()

    def batches(self, log: str) -> list[int]:
        """Return the batches for which `offsets` or `commits` has a file, in ascending order."""
        names = (each.rpartition("/") for each in self.files)
        return sorted(int(n) for folder, _, n in names if folder == log and is_whole(n))

    def in_folder(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""
        return [name.rpartition("/")[2] for name in self.files if name.rpartition("/")[0] == folder]

    def own(self, name: str) -> dict[str, Any] | None:
        """Return the content of one of the job's JSON files, None where it cannot be read."""
        return self._parsed(name, _json)

    def query_id(self) -> UUID | None:
        """Return the query id, None where it cannot be read."""
        return self._parsed(METADATA, _query_id)

    def snapshot(self, name: str) -> Snapshot | None:
        """Return what a snapshot refers to, None where it cannot be read."""
        return self._decoded(name, spark_files.snapshot)

    def operator(self, name: str) -> tuple[int, tuple[str, ...]] | None:
        """Return the metadata of an operator, None where it cannot be read."""
        return self._parsed(name, spark_files.operator)

    def changelog(self, name: str) -> Changelog | None:
        """Return a changelog, None where it cannot be read."""
        return self._decoded(name, Changelog)

    def source_names(self, source: int, at: str = "") -> list[Name]:
        """Return the names of the files of a file source's log; `at` is a folder, with its `/`."""
        names = map(spark_files.name, self.in_folder(f"{at}sources/{source}"))
        return [name for name in names if name is not None]

    def source_log(self, source: int, at: str = "") -> dict[Name, str]:
        """Return the text of each readable file of a file source's log."""
        names = self.source_names(source, at)
        files = {name: f"{at}sources/{source}/{name.text}" for name in names}
        texts = {name: self._parsed(file, str) for name, file in files.items()}
        return {name: text for name, text in texts.items() if text is not None}

    def _problem(self, name: str) -> str | None:
        if name not in self.files:
            return MISSING
        try:
            content = self.read(name)
            damaged = damaged_beside(self.path / name, content)
            problem = self._checksum_problem(name, content, damaged)
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        problem = problem or _content_problem(name, content)
        if damaged and problem is None:
            self.unsummed.add(name)
        return problem

    def _checksum_problem(
        self, name: str, content: bytes, damaged: Mapping[Path, bytes]
    ) -> str | None:
        problem = None
        sums, sidecar = hadoop_file(self.path / name), spark_file(self.path / name)
        if sums not in damaged and sums.exists():
            problem = hadoop_problem(content, sums.read_bytes())
        if problem is None and sidecar not in damaged and sidecar.exists():
            problem = spark_problem(content, sidecar.read_bytes())
        return problem

    def _parsed(self, name: str, parse: Callable[[str], _Parsed]) -> _Parsed | None:
        return self._decoded(name, lambda content: parse(content.decode()))

    def _decoded(self, name: str, decode: Callable[[bytes], _Parsed]) -> _Parsed | None:
        if self.problem(name) is not None:
            return None
        try:
            content = self.read(name)
        except OSError:
            # A running job has removed it since it was checked.
            return None
        return decode(content)


def _stat(file: Path) -> Stat | None:
    """Return the size and time of a file; None for a folder, and for what has just been removed."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return None
    return Stat(stat.st_size, stat.st_mtime) if S_ISREG(stat.st_mode) else None


def _content_problem(name: str, content: bytes) -> str | None:
    """Return what is wrong with the content of a file whose checksums match or do not exist."""
    name = _REPEATED.sub("", name)
    folder, _, last = name.rpartition("/")
    try:
        if name == METADATA:
            _query_id(content.decode())
        elif name in _OWN:
            return _own_problem(name, _json(content.decode()))
        elif (folder == "offsets" and is_whole(last)) or name == repeats.PLAN:
            spark_files.plan(content.decode())
        elif name == repeats.SOURCE:
            _source(content.decode())
        elif folder == "commits" and is_whole(last):
            spark_files.committed(content.decode())
        elif folder.startswith("sources/") and spark_files.name(last):
            _source_file(content.decode())
        elif folder.endswith("/_metadata/v2"):
            spark_files.operator(content.decode())
        elif last.endswith(".zip"):
            spark_files.snapshot(content)
        elif last.endswith(".changelog"):
            Changelog(content).sizes()
    except ValueError as error:
        return f"it cannot be read: {error}"
    return None


def _source_file(text: str) -> None:
    if text.startswith(spark_files.INITIAL_HEAD):
        json.loads(text.removeprefix(spark_files.INITIAL_HEAD))
    else:
        spark_files.entries(text)


def _own_problem(name: str, kept: dict[str, Any]) -> str | None:
    version = kept["version"]
    if version > _OWN[name]:
        return f"it was written by a newer Holdfast (version {version})"
    try:
        if name == policy_history.FILE:
            policy_history.PolicyHistory.from_json(kept)
        elif name == initial.FILE:
            initial.from_json(kept)
    except (KeyError, TypeError) as error:
        return f"it cannot be read: {error}"
    return None


def _json(text: str) -> dict[str, Any]:
    kept = json.loads(text)
    if not isinstance(kept, dict) or not isinstance(kept.get("version"), int):
        raise ValueError("it has no version")  # noqa: TRY004 - the content of a file, not an argument
    return kept


def _query_id(text: str) -> UUID:
    try:
        return UUID(json.loads(text)["id"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it has no query id") from error


def _source(text: str) -> None:
    try:
        repeats.source_from_json(json.loads(text))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error} is missing in it") from error


def moved_from(folder: Path, kept: dict[str, Any] | None) -> str | None:
    """Return the path at which the checkpoint was begun, where that is another one."""
    begun_at = str((kept or {}).get(shape.LOCATION) or "").removeprefix("file:")
    return begun_at if begun_at and begun_at != str(folder) else None
