"""The files of a checkpoint: which there are, and whether each is intact. Nothing is written."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar
from uuid import UUID

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import is_whole
from holdfast.spark_app.checkpoint import initial, origin, policy_history, repeats, retention, shape
from holdfast.spark_app.checkpoint.checksums import hadoop_problem, spark_problem
from holdfast.spark_app.checkpoint_manager import spark_files
from holdfast.spark_app.checkpoint_manager.spark_files import (
    Changelog,
    Committed,
    Name,
    Plan,
    Snapshot,
)
from holdfast.spark_app.checkpoint_manager.trees import LocalTree, Stat, Tree, tree_of
from holdfast.spark_app.runtime.launch import Launch

_STATE: Final = (".zip", ".changelog", ".sst")
"""How the names of state files end: they may be large, and none is read again."""

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


class Folder:
    """One checkpoint, as it is when this is made; each file is read on demand, once."""

    def __init__(self, checkpoint: str | Tree) -> None:
        """Raise CommandError unless it is a checkpoint of the job; a text is a local path."""
        if isinstance(checkpoint, str):
            checkpoint = LocalTree(checkpoint)
        self.tree = checkpoint
        self.location = checkpoint.location
        self.files: dict[str, Stat] = {}
        self.removed: dict[str, Stat] = {}
        """What restores have removed."""
        for name, stat in checkpoint.files().items():
            (self.removed if name.startswith(REMOVED) else self.files)[name] = stat
        self._texts: dict[str, bytes] = {}
        self._states: dict[str, Snapshot | Changelog] = {}
        """What was read, apart from the content of state files."""
        if shape.FILE not in self.files and not self.batches("offsets"):
            raise CommandError(
                f"{self.location} is not a checkpoint of the exposure job: there is no {shape.FILE}"
                " in it. Nothing was read; pass the --checkpoint of `job run`.",
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
        content = self._texts.get(name)
        if content is None:
            content = self.tree.content(name)
            if not name.endswith(_STATE):
                self._texts[name] = content
        return content

    def again(self) -> "Folder":
        """Return the checkpoint as it is now."""
        return Folder(self.tree)

    def problems(self) -> dict[str, str]:
        """Return what is wrong with each damaged file; several are read at once from a network."""
        # A state file is compared with its checksum file.
        names = sorted(self.files, key=lambda name: not name.endswith(".crc"))
        sums = sum(name.endswith(".crc") for name in names)
        with ThreadPoolExecutor(self.tree.readers) as pool:
            problems = [
                why
                for group in (names[:sums], names[sums:])
                for why in pool.map(self.problem, group)
            ]
        return {name: why for name, why in zip(names, problems, strict=True) if why is not None}

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
        found = self._states.get(name) if self.problem(name) is None else None
        return found if isinstance(found, Snapshot) else None

    def operator(self, name: str) -> tuple[int, tuple[str, ...]] | None:
        """Return the metadata of an operator, None where it cannot be read."""
        return self._parsed(name, spark_files.operator)

    def changelog(self, name: str) -> Changelog | None:
        """Return a changelog, None where it cannot be read."""
        found = self._states.get(name) if self.problem(name) is None else None
        return found if isinstance(found, Changelog) else None

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
            damaged = self.tree.damaged_sums(name, content)
            problem = self._checksum_problem(name, content, damaged)
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        problem = problem or self._content_problem(name, content)
        if damaged and problem is None:
            self.unsummed.add(name)
        return problem

    def _checksum_problem(self, name: str, content: bytes, damaged: set[str]) -> str | None:
        at, slash, last = name.rpartition("/")
        problem, sidecar = None, f"{name}.crc"
        if f"{at}{slash}.{last}.crc" not in damaged:
            sums = self.tree.hadoop_sums(name)
            problem = None if sums is None else hadoop_problem(content, sums)
        if problem is None and sidecar not in damaged and sidecar in self.files:
            problem = spark_problem(content, self.read(sidecar))
        return problem

    def _content_problem(self, name: str, content: bytes) -> str | None:
        try:
            parsed = _checked(name, content)
        except ValueError as error:
            return f"it cannot be read: {error}"
        if isinstance(parsed, str):
            return parsed
        if parsed is not None:
            self._states[name] = parsed
        return None

    def _parsed(self, name: str, parse: Callable[[str], _Parsed]) -> _Parsed | None:
        return parse(self.read(name).decode()) if self.problem(name) is None else None


def _checked(name: str, content: bytes) -> Snapshot | Changelog | str | None:
    """Return what a state file refers to; raises ValueError for what cannot be read, of any kind.

    A text is what is wrong with a file that can be read.
    """
    name = _REPEATED.sub("", name)
    folder, _, last = name.rpartition("/")
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
        return spark_files.snapshot(content)
    elif last.endswith(".changelog"):
        return Changelog(content)
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


@contextmanager
def opened(checkpoint: str, launch: Launch) -> Iterator[Folder]:
    """Yield a checkpoint where it lies; Spark starts where that is not a local path.

    Raises CommandError where the file system does not answer, or it is no checkpoint of the job.
    """
    with tree_of(checkpoint, launch) as tree:
        yield Folder(tree)


def moved_from(location: str, kept: dict[str, Any] | None) -> str | None:
    """Return the path at which the checkpoint was begun, where that is another one."""
    begun_at = str((kept or {}).get(shape.LOCATION) or "").removeprefix("file:")
    return begun_at if begun_at and begun_at != location.removeprefix("file:") else None
