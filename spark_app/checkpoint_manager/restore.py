"""`restore`: go back to a kept batch, in place; later batches are repeated as they were planned.

    running driver fenced -> the folder read again -> intent written
    -> plans to repeat written (`checkpoint.repeats`)
    -> newer plans, commits and log entries moved aside -> intent moved to what was removed

Each step can be repeated, and the next call continues where a crash has left it. The checkpoint
keeps its query id, so the ledger compares each batch that runs again with what it has: nothing is
written a second time, and other content is refused. State files stay: the commits name those that
belong to a batch.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.numbers import is_whole
from holdfast.sink.errors import SinkError
from holdfast.spark_app.checkpoint import repeats, shape
from holdfast.spark_app.checkpoint_manager import history, spark_files
from holdfast.spark_app.checkpoint_manager.folder import METADATA, REMOVED, Folder, moved_from
from holdfast.spark_app.checkpoint_manager.history import INTENT, Restore
from holdfast.spark_app.checkpoint_manager.kept import Kept
from holdfast.spark_app.checkpoint_manager.ledger import Ledger, Recorded, ledger
from holdfast.spark_app.checkpoint_manager.listing import Document, require_kept, stream
from holdfast.spark_app.checkpoint_manager.spark_files import Name
from holdfast.spark_app.checkpoint_manager.trees import Tree
from holdfast.spark_app.input import ticks
from holdfast.spark_app.lifecycle.failure import explain


@dataclass(frozen=True, slots=True)
class Replanned:
    """The batches to repeat."""

    until: int
    """The newest one: batches after it were neither done nor recorded."""
    exact_until: int
    """The newest one whose plan and files are known. Spark plans those after it again."""
    files: Mapping[str, str]
    """All texts in `repeats.FOLDER`, by name in the checkpoint."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What changes in the folder: files to move aside, and texts of a source's log to write."""

    moved: tuple[str, ...]
    written: dict[str, str]


@dataclass(frozen=True, slots=True)
class Steps:
    """A restore: its intent, what it changes, and the batches that the next start repeats."""

    intent: Restore
    cut: Cut
    again: Replanned
    recorded: dict[int, Recorded]
    """In the ledger, after the batch."""


def restored(folder: Folder, batch: int, dsn: str, *, dry_run: bool) -> Document:
    """Restore a checkpoint; raises CommandError before anything is changed."""
    kept, name = Kept(folder), stream(folder)
    unfinished = history.unfinished(folder)
    if unfinished is not None and unfinished.batch != batch:
        raise CommandError(
            f"a restore to batch {unfinished.batch} was interrupted. Nothing was changed; finish it"
            f" first, with --batch {unfinished.batch}.",
            code="restore_interrupted",
        )
    require_kept(kept, batch)
    _require_usable(folder, kept, batch)
    query_id = folder.query_id()
    if query_id is None or name is None:
        raise CommandError(
            f"{METADATA} or {shape.FILE} cannot be read. Nothing was changed.",
            code="checkpoint_damaged",
        )
    with ledger(dsn, name) as books:
        books.require_stopped()
        _require_recorded(books, name, query_id, batch)
        steps = _steps(folder, batch, unfinished, books.after(query_id, batch))
        if not dry_run:
            _fence(books, query_id)
            # A driver whose connection a pooler hides may have planned batches until now.
            steps = _steps(folder.again(), batch, unfinished, books.after(query_id, batch))
            books.owned(partial(_run, folder.tree, steps))
    recorded, again = steps.recorded, steps.again
    return {
        "checkpoint": folder.location,
        "stream": name,
        "query_id": str(query_id),
        "batch_id": batch,
        "dry_run": dry_run,
        "repeated": {
            "first_batch_id": batch + 1,
            "last_batch_id": again.until,
            "last_exact_batch_id": again.exact_until,
            "recorded": len(recorded),
            "rows": sum(each.rows for each in recorded.values()),
            "entries": sum(each.entries for each in recorded.values()),
        },
        "removed": None if dry_run else f"{folder.location}/{steps.intent.removed}",
        "moved_files": list(steps.cut.moved),
        "rebuilt_files": list(steps.cut.written),
    }


def _steps(
    folder: Folder, batch: int, unfinished: Restore | None, recorded: dict[int, Recorded]
) -> Steps:
    """Return what a restore does; raises CommandError where there is nothing to do."""
    newest = max(
        [*folder.batches("offsets"), *folder.batches("commits"), *pending(folder), *recorded]
    )
    if newest <= batch and unfinished is None:
        raise CommandError(
            f"batch {batch} is the newest one of {folder.location}. Nothing was changed.",
            ExitCode.NOTHING_MATCHED,
            code="nothing_to_restore",
        )
    again, cut = replanned(folder, batch, recorded), _cut(folder, batch)
    stale = (name for name in folder.files if name.startswith(f"{repeats.FOLDER}/"))
    return Steps(
        intent=unfinished or _intent(folder, batch, newest),
        cut=replace(cut, moved=(*cut.moved, *(name for name in stale if name not in again.files))),
        again=again,
        recorded=recorded,
    )


def _require_usable(folder: Folder, kept: Kept, batch: int) -> None:
    elsewhere = moved_from(folder.location, folder.own(shape.FILE))
    if elsewhere is not None:
        raise CommandError(
            f"{folder.location} was begun in another place, {elsewhere}, and Spark reads a part of"
            " its state from there. Nothing was changed; restore the checkpoint at that path.",
            code="checkpoint_moved",
        )
    needs = kept.needs(batch)
    if needs.usable:
        return
    name, why = next(iter(needs.problems.items()))
    others = [str(each) for each in kept.restorable()]
    raise CommandError(
        f"batch {batch} cannot be restored: {name}: {why}"
        + (f", and {len(needs.problems) - 1} more files" if len(needs.problems) > 1 else "")
        + ". Nothing was changed; "
        + (f"these batches are intact: {', '.join(others)}." if others else "no batch is intact."),
        code="batch_damaged",
    )


def _require_recorded(books: Ledger, name: str, query_id: UUID, batch: int) -> None:
    """Raise CommandError where the ledger is behind the batch: a start would be refused."""
    newest = books.newest(query_id)
    if newest is None or newest < batch:
        known = "it has none of it" if newest is None else f"its newest is {newest}"
        raise CommandError(
            f"the ledger of stream {name!r} does not have batch {batch} of query {query_id}:"
            f" {known}. Nothing was changed; check that --dsn is the database that the job"
            " wrote. If the database was put back to an older moment, go back to a batch that it"
            " has: those after it are then written again.",
            code="batch_not_in_ledger",
        )


def _intent(folder: Folder, batch: int, newest: int) -> Restore:
    numbers = [
        int(each.removeprefix(REMOVED))
        for each in history.removed_folders(folder)
        if is_whole(each.removeprefix(REMOVED))
    ]
    return Restore(
        batch=batch,
        newest=newest,
        removed=f"{REMOVED}{max(numbers, default=0) + 1}",
        begun_at=rfc3339(datetime.now(UTC)),
    )


def _fence(books: Ledger, query_id: UUID) -> None:
    try:
        books.fence(query_id)
    except SinkError as error:
        raise CommandError(
            f"{explain(error)} The checkpoint was not changed.", code="sink_error"
        ) from error


def _cut(folder: Folder, batch: int) -> Cut:
    moved = [
        name for name in folder.files if (number := _batch_of(name)) is not None and number > batch
    ]
    written: dict[str, str] = {}
    plan = folder.plan(batch)
    for source, line in enumerate(plan.sources if plan else ()):
        at = f"sources/{source}"
        try:
            position = spark_files.log_offset(line)
        except ValueError:
            continue  # not a source of files
        names = folder.source_names(source)
        last = -1 if position is None else position
        moved += [f"{at}/{name.text}" for name in names if name.number > last]
        rebuilt = spark_files.rebuilt(last, names, folder.source_log(source)) or {}
        written |= {f"{at}/{name.text}": text for name, text in rebuilt.items()}
    return Cut(tuple(moved), written)


def _batch_of(name: str) -> int | None:
    """Return the batch of a plan, a commit, or the metadata of an operator."""
    folder, _, last = name.rpartition("/")
    if folder in ("offsets", "commits") or folder.endswith("/_metadata/v2"):
        return int(last) if is_whole(last) else None
    return None


def _run(tree: Tree, steps: Steps) -> None:
    intent, cut, again = steps.intent, steps.cut, steps.again
    tree.put(INTENT, intent.to_json())
    for name, text in again.files.items():
        tree.put(name, text)
    tree.put(repeats.FILE, repeats.to_json(again.until))
    failpoint("O4")
    for name, text in cut.written.items():
        tree.put(name, text)
    # The commits first: a plan without its commit is what a crash of the job leaves too.
    for first in (True, False):
        names = sorted(name for name in cut.moved if name.startswith("commits/") is first)
        _move(tree, names, intent.removed)
    tree.remove_orphaned_sums()
    failpoint("O6")
    tree.move(INTENT, f"{intent.removed}/{INTENT}")


def _move(tree: Tree, names: Sequence[str], to: str) -> None:
    """Move files, several at once where each waits for a network; in any order."""

    def move(name: str) -> None:
        tree.move(name, f"{to}/{name}")
        failpoint("O5")

    if tree.readers == 1:
        for name in names:
            move(name)
        return
    with ThreadPoolExecutor(tree.readers) as pool:
        for _ in pool.map(move, names):
            pass


# What a checkpoint needs to repeat its later batches as they were planned (`checkpoint.repeats`).
#
# The ledger has the plan of each batch that was written, and the names of its files. What is in the
# checkpoint may be of a batch that was planned again since and refused, or that never ran: it
# counts only where it agrees with the ledger, or where the checkpoint itself has recorded that it
# was done.


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
        plan = None if text is None else sources.read_by(number, text, recorded.get(number))
        if text is None or plan is None:
            return Replanned(max([number - 1, *recorded]), number - 1, files)
        at = f"{repeats.FOLDER}/{number}"
        files |= {f"{at}/{name}": content for name, content in plan.items()}
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
        self._logs: dict[int, spark_files.Log] = {}
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
            elif not self._folder.tree.has_input(path):
                raise CommandError(
                    f"{path.removeprefix('file://')} is gone, and batch {batch} reads it again."
                    " Nothing was changed; put it back under its name and repeat the command.",
                    code="input_missing",
                )

    def _log(self, source: int, position: int) -> spark_files.Log:
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
            self._logs[source] = spark_files.Log(position, names, texts)
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
