"""What a checkpoint needs to repeat its later batches as they were planned (`checkpoint.repeats`).

The plans are in `offsets`, or in the ledger where one is damaged; the files of each are in the logs
of the sources.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from sink.contract.exits import CommandError
from spark_app.checkpoint import repeats, shape
from spark_app.checkpoint_manager import source_entries, spark_files
from spark_app.checkpoint_manager.folder import Folder
from spark_app.checkpoint_manager.source_entries import Entry, Name
from spark_app.input import ticks
from spark_app.input.source import local

Plans = Mapping[int, str | None]
"""The batches that the ledger has, each with the text of its plan, where it was stored."""


@dataclass(frozen=True, slots=True)
class Replanned:
    """The batches to repeat."""

    until: int
    """The newest one: batches after it were neither kept nor recorded."""
    exact_until: int
    """The newest one whose plan and files are known. Spark plans those after it again."""
    files: Mapping[str, str]
    """Texts to write, by name in the checkpoint."""


class _Incomplete(Exception):
    """The files of a batch are not known."""


def replanned(folder: Folder, batch: int, recorded: Plans) -> Replanned:
    """Return what to write so that the batches after `batch` are repeated.

    Raises CommandError where a file that they read is not there.
    """
    files: dict[str, str] = {}
    newest = max([batch, *folder.batches("offsets"), *pending(folder), *recorded])
    sources = _Sources(folder, batch)
    for number in range(batch + 1, newest + 1):
        at = f"{repeats.FOLDER}/{number}"
        text = _plan(folder, number, recorded)
        found = None if text is None else sources.read_by(number, text)
        if text is None or found is None:
            return Replanned(max([number - 1, *recorded]), number - 1, files)
        if not _is_kept(folder, at):
            files |= {f"{at}/{name}": content for name, content in found.items()}
            # The plan last: a folder that has it is complete.
            files[f"{at}/{repeats.PLAN}"] = text
    return Replanned(newest, newest, files)


def pending(folder: Folder) -> list[int]:
    """Return the batches that a checkpoint still repeats, in ascending order."""
    parts = (name.split("/") for name in folder.files)
    return sorted(
        int(number)
        for number in {each[1] for each in parts if each[0] == repeats.FOLDER and len(each) > 2}
        if number.isdecimal() and f"{repeats.FOLDER}/{number}/{repeats.PLAN}" in folder.files
    )


def _is_kept(folder: Folder, at: str) -> bool:
    names = [name for name in folder.files if name.startswith(f"{at}/")]
    return f"{at}/{repeats.PLAN}" in names and not any(map(folder.problem, names))


def _plan(folder: Folder, batch: int, recorded: Plans) -> str | None:
    for name in (f"offsets/{batch}", f"{repeats.FOLDER}/{batch}/{repeats.PLAN}"):
        if folder.problem(name) is None:
            return folder.read(name).decode()
    text = recorded.get(batch)
    try:
        spark_files.plan(text or "")
    except ValueError:
        return None
    return text


class _Sources:
    """The logs of the sources, read from one plan to the next."""

    def __init__(self, folder: Folder, batch: int) -> None:
        self._folder = folder
        kept = folder.own(shape.FILE) or {}
        self._kinds: list[str] = [each.get("kind") for each in kept.get(shape.SOURCES, ())]
        self._logs: dict[int, tuple[set[Name], dict[Name, str]]] = {}
        plan = folder.plan(batch)
        self._positions = dict(self._log_positions(plan.sources if plan else ()))
        self._there: dict[int, set[Name]] = {
            source: set(source_entries.read_for(position, self._log(source)[0]))
            for source, position in self._positions.items()
        }

    def read_by(self, batch: int, text: str) -> dict[str, str] | None:
        """Return what the next plan adds, by name in its folder; None where it is not kept.

        Raises CommandError for a file that is gone.
        """
        try:
            return dict(self._read_by(batch, text))
        except _Incomplete:
            return None

    def _read_by(self, batch: int, text: str) -> Iterator[tuple[str, str]]:
        for source, position in self._log_positions(spark_files.plan(text).sources):
            before = self._positions.get(source, -1)
            self._positions[source] = position
            if position <= before:
                continue
            there = self._there.setdefault(source, set())
            known: list[Entry] = []
            for name, content in self._wanted(source, position).items():
                known += source_entries.entries(content)
                if name not in there:
                    yield f"{repeats.SOURCES}/{source}/{name.text}", content
                    there.add(name)
            added = [each for each in known if before < each.number <= position]
            yield from self._inputs(batch, source, dict.fromkeys(each.line for each in added))

    def _inputs(
        self, batch: int, source: int, lines: Mapping[str, Any]
    ) -> Iterator[tuple[str, str]]:
        is_ticks = self._kinds[source : source + 1] == ["ticks"]
        for line in lines:
            path = unquote(str(json.loads(line)["path"]))
            if is_ticks:
                name = PurePosixPath(path).name
                content = ticks.from_name(name)
                if content is None:
                    raise _Incomplete
                yield f"{repeats.TICKS}/{name}", content
            elif (file := local(path)) is not None and not file.exists():
                raise CommandError(
                    f"{file} is gone, and batch {batch} reads it again. Nothing was changed; put it"
                    " back under its name and repeat the command."
                )

    def _wanted(self, source: int, position: int) -> dict[Name, str]:
        names, log = self._log(source)
        rebuilt = source_entries.rebuilt(position, names, log)
        if rebuilt is None:
            raise _Incomplete
        wanted = source_entries.read_for(position, names)
        return {name: log[name] if name in log else rebuilt[name] for name in wanted}

    def _log(self, source: int) -> tuple[set[Name], dict[Name, str]]:
        """Return the names of a log's entries, and the intact ones.

        Also of those that are kept for batches to repeat.
        """
        if source not in self._logs:
            names: set[Name] = set()
            log: dict[Name, str] = {}
            kept = (f"{repeats.FOLDER}/{batch}/" for batch in pending(self._folder))
            for at in ("", *kept):
                names.update(self._folder.source_names(source, at))
                log = self._folder.source_log(source, at) | log
            self._logs[source] = names, log
        return self._logs[source]

    @staticmethod
    def _log_positions(lines: Any) -> Iterator[tuple[int, int]]:
        for source, line in enumerate(lines):
            try:
                position = spark_files.log_offset(line)
            except ValueError:
                continue  # not a source of files
            if position is not None:
                yield source, position
