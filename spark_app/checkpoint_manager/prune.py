"""`prune`: remove what no kept batch needs. What the newest batches need stays, file by file.

Plans and commits go first, oldest first: after a crash the rest belongs to no batch, and the next
call removes it. What a batch in flight may be writing stays, whether or not a job is known to run.
"""

import time
from collections.abc import Iterable, Sequence

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.failpoints import failpoint
from holdfast.spark_app.checkpoint_manager import history, spark_files
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.kept import Kept
from holdfast.spark_app.checkpoint_manager.ledger import ledger
from holdfast.spark_app.checkpoint_manager.listing import Document, stream

IN_FLIGHT_SECONDS = 600
"""Age up to which state of a later version, or a shared file, may belong to a batch in flight."""


def pruned(folder: Folder, keep_last: int, min_age_ms: int, *, dry_run: bool) -> Document:
    """Remove all but the newest batches, and those younger than an age.

    Raises CommandError where a batch that is to be kept, or what a start needs, is damaged.
    """
    kept = Kept(folder)
    if history.unfinished(folder) is not None:
        raise CommandError(
            "a restore of this checkpoint was interrupted. Nothing was removed; finish it first:"
            " `holdfast job checkpoints verify` names the command.",
            code="restore_interrupted",
        )
    keep = _kept_batches(folder, kept, keep_last, min_age_ms)
    needed = _needed(kept, keep)
    oldest = min(keep, default=0)
    # Spark reads the plan before the oldest one when that is restored.
    logs = [
        name
        for log, first in (("commits", oldest), ("offsets", oldest - 1))
        for batch in folder.batches(log)
        if batch < first and (name := f"{log}/{batch}") not in needed
    ]
    others = [*_state(folder, needed, kept.newest), *_superseded(folder, oldest)] if keep else []
    aside = history.removed_folders(folder) if keep else []
    size = sum(folder.files[name].size for name in (*logs, *others))
    size += sum(
        stat.size for name, stat in folder.removed.items() if name.partition("/")[0] in aside
    )
    if not dry_run:
        _remove(folder, (*logs, *others), aside)
    return {
        "checkpoint": folder.location,
        "stream": stream(folder),
        "dry_run": dry_run,
        "kept_batch_ids": keep,
        "removed_batch_ids": [batch for batch in kept.committed if batch not in keep],
        "removed_files": [*logs, *others],
        "removed_folders": aside,
        "removed_bytes": size,
    }


def pruned_stopped(folder: Folder, keep_last: int, min_age_ms: int, dsn: str) -> Document:
    """As `pruned`, of a checkpoint whose job the database knows as stopped."""
    if (name := stream(folder)) is None:
        return pruned(folder, keep_last, min_age_ms, dry_run=False)
    with ledger(dsn, name) as books:
        books.require_stopped()
        # A restore needs what `prune` removes: it waits, and is finished when this begins.
        return books.owned(lambda: pruned(folder.again(), keep_last, min_age_ms, dry_run=False))


def _kept_batches(folder: Folder, kept: Kept, keep_last: int, min_age_ms: int) -> list[int]:
    young = time.time() - min_age_ms / 1000
    first = kept.committed[-keep_last:][:1]
    return [
        batch
        for batch in kept.committed
        if batch >= first[0] or (min_age_ms and folder.files[f"commits/{batch}"].changed_at > young)
    ]


def _needed(kept: Kept, keep: Iterable[int]) -> set[str]:
    needed: set[str] = set()
    newest = kept.newest
    for batch in keep:
        needs = kept.needs(batch, to_start=batch == newest)
        if not needs.usable:
            name, why = next(iter(needs.problems.items()))
            raise CommandError(
                f"batch {batch} is not intact: {name}: {why}. Nothing was removed; see `holdfast"
                " job checkpoints verify`.",
                code="batch_damaged",
            )
        needed.update(needs.files)
    return needed


def _state(folder: Folder, needed: set[str], newest: int | None) -> list[str]:
    """Return the state files that no kept batch needs, also those of failed attempts."""
    unneeded = []
    in_flight = time.time() - IN_FLIGHT_SECONDS
    for name in folder.files:
        at, _, last = name.rpartition("/")
        main = last.removesuffix(".crc")
        versioned, shared = spark_files.state_file(main), at.endswith("/SSTs")
        if not at.startswith("state/") or not (versioned or shared) or f"{at}/{main}" in needed:
            continue
        # The state after batch N is version N + 1.
        later = versioned is None or newest is None or versioned[0].version > newest + 1
        if not later or folder.files[name].changed_at < in_flight:
            unneeded.append(name)
    return unneeded


def _superseded(folder: Folder, oldest: int) -> list[str]:
    """Return the entries of sources' logs that a compact one repeats, for all kept batches."""
    plan, superseded = folder.plan(oldest), []
    for source, line in enumerate(plan.sources if plan else ()):
        try:
            position = spark_files.log_offset(line)
        except ValueError:
            continue  # not a source of files
        at = f"sources/{source}"
        names = folder.source_names(source)
        if position is not None:
            first = min(name.number for name in spark_files.read_for(position, names))
            superseded += [f"{at}/{name.text}" for name in names if name.number < first]
    return superseded


def _remove(folder: Folder, names: Sequence[str], aside: Iterable[str]) -> None:
    for first in range(0, len(names), folder.tree.page):
        folder.tree.remove_files(names[first : first + folder.tree.page])
        failpoint("O7")
    for each in aside:
        folder.tree.remove_folder(each)
