"""What a checkpoint needs to repeat its later batches as they were planned (`checkpoint.repeats`).

The ledger has the plan of each batch that was written, and the names of its files. What is in the
checkpoint may be of a batch that was planned again since and refused, or that never ran: it counts
only where it agrees with the ledger, or where the checkpoint itself has recorded that it was done.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.numbers import is_whole
from holdfast.spark_app.checkpoint import repeats, shape
from holdfast.spark_app.checkpoint_manager import source_entries, spark_files
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.ledger import Recorded
from holdfast.spark_app.checkpoint_manager.source_entries import Name
from holdfast.spark_app.input import ticks
from holdfast.spark_app.input.source import local


@dataclass(frozen=True, slots=True)
class Replanned:
    """The batches to repeat."""

    until: int
    """The newest one: batches after it were neither done nor recorded."""
    exact_until: int
    """The newest one whose plan and files are known. Spark plans those after it again."""
    files: Mapping[str, str]
    """All texts in `repeats.FOLDER`, by name in the checkpoint."""


class _Incomplete(Exception):
    """The files of a batch are not known."""


def replanned(folder: Folder, batch: int, recorded: Mapping[int, Recorded]) -> Replanned:
    """Return what to write so that the batches after `batch` are repeated.

    `recorded` has those that the ledger has. Raises CommandError where a file that they read is not
    there.
    """
    files: dict[str, str] = {}
    newest = max([batch, *folder.batches("offsets"), *pending(folder), *recorded])
    sources = _Sources(folder, batch)
    for number in range(batch + 1, newest + 1):
        text = _plan(folder, number, recorded.get(number))
        found = None if text is None else sources.read_by(number, text, recorded.get(number))
        if text is None or found is None:
            return Replanned(max([number - 1, *recorded]), number - 1, files)
        at = f"{repeats.FOLDER}/{number}"
        files |= {f"{at}/{name}": content for name, content in found.items()}
        source = f"{at}/{repeats.SOURCE}"
        if number not in recorded and folder.problem(source) is None:
            files[source] = folder.read(source).decode()
        # The plan last: a folder that has it is complete.
        files[f"{at}/{repeats.PLAN}"] = text
    return Replanned(newest, newest, files)


def pending(folder: Folder) -> list[int]:
    """Return the batches that a checkpoint still repeats, in ascending order."""
    parts = (name.split("/") for name in folder.files)
    return sorted(
        int(number)
        for number in {each[1] for each in parts if each[0] == repeats.FOLDER and len(each) > 2}
        if is_whole(number) and f"{repeats.FOLDER}/{number}/{repeats.PLAN}" in folder.files
    )


def _plan(folder: Folder, batch: int, recorded: Recorded | None) -> str | None:
    """Return the plan of a batch as it was done; None where it is not known."""
    try:
        spark_files.plan((recorded and recorded.plan) or "")
    except ValueError:
        kept = _kept_plans(folder, batch)
        if batch not in folder.batches("commits"):
            # It may have been planned again since, and never done.
            kept.pop(f"offsets/{batch}", None)
        return next(iter(kept.values()), None)
    return recorded.plan if recorded else None


def _kept_plans(folder: Folder, batch: int) -> dict[str, str]:
    """Return the intact plans of a batch in the checkpoint, by the names of their files."""
    names = (f"{repeats.FOLDER}/{batch}/{repeats.PLAN}", f"offsets/{batch}")
    return {name: folder.read(name).decode() for name in names if folder.problem(name) is None}


class _Sources:
    """The logs of the sources, from one plan to the next."""

    def __init__(self, folder: Folder, batch: int) -> None:
        self._folder = folder
        kept = folder.own(shape.FILE) or {}
        self._kinds: list[str] = [each.get("kind") for each in kept.get(shape.SOURCES, ())]
        self._logs: dict[int, source_entries.Log] = {}
        plan = folder.plan(batch)
        self._positions = dict(self._log_positions(plan.sources if plan else ()))

    def read_by(self, batch: int, text: str, recorded: Recorded | None) -> dict[str, str] | None:
        """Return what the next plan adds, by name in its folder; None where it is not known.

        Raises CommandError for a file that is gone.
        """
        try:
            return dict(self._read_by(batch, text, recorded))
        except _Incomplete:
            return None

    def _read_by(
        self, batch: int, text: str, recorded: Recorded | None
    ) -> Iterator[tuple[str, str]]:
        plans = _kept_plans(self._folder, batch).values()
        is_of_plan = not plans or text in plans
        for source, position in self._log_positions(spark_files.plan(text).sources):
            before = self._positions.get(source, -1)
            self._positions[source] = position
            log = self._log(source, before)
            for entry in range(before + 1, position + 1):
                lines = _recorded_lines(recorded, source, entry)
                if lines is None and is_of_plan:
                    lines = log.known.get(entry)
                added = None if lines is None else log.add(entry, lines)
                if not lines or added is None:
                    raise _Incomplete
                name, content = added
                yield f"{repeats.SOURCES}/{source}/{name.text}", content
                yield from self._inputs(batch, source, lines)

    def _inputs(self, batch: int, source: int, lines: list[str]) -> Iterator[tuple[str, str]]:
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

    def _log(self, source: int, position: int) -> source_entries.Log:
        """Return a log up to an entry, with all that is known of it.

        Also of the batches that are still to be repeated, which the log itself does not have yet.
        """
        if source not in self._logs:
            kept = (f"{repeats.FOLDER}/{batch}/" for batch in pending(self._folder))
            names: set[Name] = set()
            texts: dict[Name, str] = {}
            for at in ("", *kept):
                names.update(self._folder.source_names(source, at))
                texts |= self._folder.source_log(source, at)
            self._logs[source] = source_entries.Log(position, names, texts)
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


def _recorded_lines(recorded: Recorded | None, source: int, entry: int) -> list[str] | None:
    """Return the rows of a log's entry that the ledger has; None where it has none."""
    rows = recorded.files.get(source, []) if recorded else []
    lines = [
        json.dumps(row, separators=(",", ":"), ensure_ascii=False)
        for row in rows
        if row.get("batchId") == entry
    ]
    return lines or None
