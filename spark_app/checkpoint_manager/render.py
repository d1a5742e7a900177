"""The answers as text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.sink.contract.numbers import counted
from holdfast.spark_app.checkpoint_manager.listing import Document

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_NOT_KNOWN = "-"


def listed(answer: Document) -> Iterator[str]:
    """Yield the lines of `list`."""
    yield from _head(answer)
    yield (
        f"{size(answer['bytes'])} in all, {size(answer['state_bytes'])} of state;"
        f" {_retention(answer['retention'])}"
    )
    for batch in answer["planned_batch_ids"]:
        yield f"batch {batch} is planned and not committed: the next start runs it again"
    if not answer["batches"]:
        yield "no committed batch yet"
        return
    rows = [
        [
            str(each["batch_id"]),
            each["watermark"] or _NOT_KNOWN,
            each["planned_at"] or _NOT_KNOWN,
            size(each["changelog_bytes"]),
            size(each["snapshot_bytes"]) if each["snapshot_bytes"] else _NOT_KNOWN,
            *_phases(each["phases_ms"]),
        ]
        for each in answer["batches"]
    ]
    head = ["batch", "watermark", "planned", "changelog", "snapshot", *_PHASES]
    yield from _table([head, *rows])
    if all(each["written_at"] is None for each in answer["batches"]):
        yield "The ledger's times are missing: pass --dsn or set HOLDFAST_DSN."


def shown(answer: Document) -> Iterator[str]:
    """Yield the lines of `show`."""
    yield from _head(answer)
    yield (
        f"batch {answer['batch_id']} · watermark {answer['watermark'] or 'none'}"
        f" · next {answer['next_watermark'] or 'none'}"
    )
    moments = [
        f"{name} {answer[key] or 'not known'}"
        for name, key in (
            ("planned", "planned_at"),
            ("state written", "state_at"),
            ("outbox", "written_at"),
            ("committed", "committed_at"),
        )
    ]
    yield " · ".join(moments)
    if answer["written_at"] is None:
        yield "The ledger's times are missing: pass --dsn or set HOLDFAST_DSN."
    for number, source in enumerate(answer["sources"] or ()):
        yield f"source {number} {source}"
    for each in answer["state"]:
        snapshot = each["snapshot_batch_id"]
        start = "no intact snapshot" if snapshot is None else f"snapshot of batch {snapshot}"
        yield (
            f"partition {each['partition']}: {start} and"
            f" {counted(each['changelogs'], 'changelog')}, {size(each['bytes'])}"
        )
    if answer["changes"] is not None:
        changes = (f"{kind} {size(count)}" for kind, count in answer["changes"].items())
        yield f"changed, uncompressed: {', '.join(changes) or 'nothing'}; {answer['changes_note']}"
    yield _retention(answer["retention"])
    sizes = [each["bytes"] or 0 for each in answer["files"]]
    yield f"needs {counted(len(sizes), 'file')}, {size(sum(sizes))}"
    for each in (*answer["problems"], *answer["replaced"]):
        yield f"{each['file']}: {each['problem']}"
    yield "can be restored" if answer["restorable"] else "cannot be restored"


def verified(answer: Document) -> Iterator[str]:
    """Yield the lines of `verify`."""
    yield (
        f"{answer['checkpoint']}: {answer['result']}; read {counted(answer['files'], 'file')},"
        f" {size(answer['bytes'])}"
    )
    for each in answer["damaged"]:
        yield f"{each['file']}: {each['problem']} ({_effect(each)})"
    if answer["moved_from"]:
        yield f"The checkpoint was begun at {answer['moved_from']}, where a job has to find it."
    deep = answer["deep"]
    if deep is not None:
        yield (
            f"state after batch {deep['batch_id']}: {counted(deep['merchants'], 'merchant')},"
            f" {counted(deep['windows'], 'row')} of windows,"
            f" {counted(deep['event_ids'], 'event id')}"
            + (f"; {deep['problem']}" if deep["problem"] else ", all decoded")
        )
    intact = [each["batch_id"] for each in answer["batches"] if each["restorable"]]
    yield f"intact batches: {_ranges(sorted(intact)) or 'none'}"
    yield from answer["advice"]


def restored(answer: Document) -> Iterator[str]:
    """Yield the lines of `restore`."""
    again, dry_run = answer["repeated"], answer["dry_run"]
    first, last = again["first_batch_id"], again["last_batch_id"]
    exact = again["last_exact_batch_id"]
    yield (
        f"{answer['checkpoint']} {'would go' if dry_run else 'went'} back to batch"
        f" {answer['batch_id']}."
    )
    if exact >= first:
        repeats = "would repeat" if dry_run else "repeats"
        yield (
            f"The next start {repeats} {_batches(first, exact)} with the input of before. The"
            f" ledger has {again['recorded']} of them, with"
            f" {counted(again['entries'], 'entry')}: of those nothing is written or"
            " delivered a second time."
        )
    if last > exact:
        yield (
            f"The plan or the file names of {_batches(exact + 1, last)} are lost: Spark plans"
            " again, and the ledger refuses a batch with other decisions than before."
        )
    if answer["rebuilt_files"]:
        yield f"Made again from a compact entry: {', '.join(answer['rebuilt_files'])}"
    if dry_run:
        yield "Nothing was changed."
        return
    yield f"What was removed is in {answer['removed']}. Start the job."


def _batches(first: int, last: int) -> str:
    return f"batch {first}" if first == last else f"batches {first} to {last}"


def pruned(answer: Document) -> Iterator[str]:
    """Yield the lines of `prune`."""
    verb = "would remove" if answer["dry_run"] else "removed"
    files = len(answer["removed_files"])
    yield (
        f"{verb} {counted(len(answer['removed_batch_ids']), 'batch')} and {counted(files, 'file')},"
        f" {size(answer['removed_bytes'])}; kept batches {_ranges(answer['kept_batch_ids'])}"
    )
    for name in answer["removed_folders"]:
        yield f"{verb} {name}/, what a restore had removed"


def size(count: int) -> str:
    """Return a number of bytes with its unit.

    >>> size(512), size(4_300_000)
    ('512 B', '4.1 MiB')
    """
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} B"


_PHASES = ("plan-state", "state-outbox", "outbox-commit", "all ms")


def _phases(phases: dict[str, int | None]) -> list[str]:
    names = ("plan_to_state", "state_to_outbox", "outbox_to_commit", "plan_to_commit")
    return [_NOT_KNOWN if phases[name] is None else str(phases[name]) for name in names]


def _head(answer: Document) -> Iterator[str]:
    yield (
        f"{answer['checkpoint']} · stream {answer['stream'] or 'not known'}"
        f" · query {answer['query_id'] or 'not known'}"
    )
    if answer["repeats_until"] is not None:
        yield f"the next start repeats batches up to {answer['repeats_until']} as planned before"
    for each in answer["restores"]:
        yield (
            f"restored from batch {each['last_batch_id']} to batch {each['batch_id']}"
            f" on {each['restored_at']}"
        )


def _retention(retention: dict[str, Any] | None) -> str:
    if retention is None:
        return "retention not recorded (by a start of this version)"
    spark = ", ".join(
        f"{name.removeprefix('spark.sql.streaming.')}={value}"
        for name, value in retention["spark"].items()
    )
    return f"keeps {counted(retention['keep_batches'], 'batch')} ({spark})"


def _effect(damaged: dict[str, Any]) -> str:
    if damaged["needed_to_start"]:
        return "needed to start"
    if damaged["needed_by_batch_ids"]:
        return f"needed by batch {_ranges(damaged['needed_by_batch_ids'])}"
    if damaged["replaced_for_batch_ids"]:
        return "an older snapshot serves"
    return "no kept batch needs it"


def _ranges(batches: Sequence[int]) -> str:
    """Return ascending numbers with runs joined.

    >>> _ranges([1, 2, 3, 7])
    '1-3, 7'
    """
    runs: list[list[int]] = []
    for batch in batches:
        if runs and batch == runs[-1][1] + 1:
            runs[-1][1] = batch
        else:
            runs.append([batch, batch])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
