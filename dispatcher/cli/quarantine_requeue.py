"""Putting rows of the quarantine back: to the outbox as entries, or to the job as source lines."""

import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from itertools import groupby
from pathlib import Path

from dispatcher.cli.quarantine_files import write_lines
from dispatcher.core.quarantine import is_entry, why_not_as_kept
from dispatcher.store.operator_session import Row
from dispatcher.store.quarantine import Quarantine
from sink.contract.exits import CommandError, ExitCode
from sink.contract.requeue import GROUP, Requeue
from sink.contract.states import QuarantineResolution

ROW_FILE_BYTES_MAX = 1 << 20

_LINE_BREAKS = re.compile(r"[\r\n]+")


def texts_of(rows: list[Row], file: Path | None, *, lines: bool) -> dict[int, str]:
    """Return what is put back for each row: the operator's corrected row, else the kept one.

    `lines` says that they go to the job. Raises `CommandError` where a row cannot go that way.
    """
    wrong = [row for row in rows if is_entry(row) == lines]
    if wrong:
        raise CommandError(_other_way(wrong[0], lines=lines), ExitCode.USAGE)
    if file is not None:
        if len(rows) != 1:
            raise CommandError(
                f"--row holds one row, but {len(rows)} rows are named. Nothing was changed.",
                ExitCode.USAGE,
            )
        text = _corrected(file)
        # Between the tokens of JSON a line break is a space.
        return {rows[0]["id"]: _LINE_BREAKS.sub(" ", text) if lines else text}
    for row in rows:
        why = why_not_as_kept(row)
        if why is not None:
            raise CommandError(
                f"row {row['id']} cannot be put back as it was kept: {why}. Nothing was changed;"
                " let its source send it again and dismiss it here, or give the whole row with"
                " --row FILE.",
                ExitCode.USAGE,
            )
    return {row["id"]: row["row"] for row in rows}


def put_lines(
    store: Quarantine, texts: Mapping[int, str], directory: Path, reason: str
) -> tuple[list[int], dict[int, Path]]:
    """Write source lines for the job, a file each, then mark the rows; their ids and the files."""
    paths = write_lines(directory, texts)
    done = store.resolve(
        list(texts),
        QuarantineResolution.REQUEUED,
        reason,
        {"files": [str(path.absolute()) for path in paths]},
    )
    return done, dict(zip(texts, paths, strict=True))


def put_entries(
    dsn: str,
    store: Quarantine,
    rows: list[Row],
    texts: Mapping[int, str],
    reason: str,
    *,
    suppress_repeats: bool,
) -> tuple[list[Row], list[Row]]:
    """Write rows as entries, and mark each as soon as it is written.

    Returns those that were put back and those that were refused again, each as `id`, `detail`.
    """
    write = _writer()
    done: list[Row] = []
    refused: list[Row] = []
    by_stream = sorted(rows, key=lambda row: (row["stream"], row["id"]))
    for stream, group in groupby(by_stream, key=lambda row: str(row["stream"])):
        of_stream = {row["id"]: texts[row["id"]] for row in group}
        for outcome in write(dsn, stream, of_stream, suppress_repeats=suppress_repeats):
            number, detail = outcome.quarantine_id, outcome.detail
            if not outcome.written:
                refused.append({"id": number, "detail": detail})
                continue
            marked = store.resolve(
                [number], QuarantineResolution.REQUEUED, reason, {"detail": detail}
            )
            meanwhile = "" if marked else "; somebody else resolved the row meanwhile"
            done.append({"id": number, "detail": f"{detail}{meanwhile}"})
    return done, refused


def _writer() -> Requeue:
    for point in entry_points(group=GROUP):
        try:
            found: Requeue = point.load()
        except ModuleNotFoundError as error:
            raise CommandError(
                f"putting entries back needs the package {error.name}, which is not installed:"
                " pip install 'holdfast[sink]'. Nothing was changed.",
                ExitCode.USAGE,
            ) from None
        return found
    raise CommandError(
        "this installation has nothing that writes entries: install Holdfast again with"
        " pip install 'holdfast[sink]'. Nothing was changed.",
        ExitCode.USAGE,
    )


def _other_way(row: Row, *, lines: bool) -> str:
    if lines:
        return (
            f"row {row['id']} was refused as an entry ({row['reason']}), so no job reads it."
            " Nothing was changed; leave out --into for it."
        )
    return (
        f"row {row['id']} was refused before it was an entry ({row['reason']}). Nothing was"
        " changed; give it back to the job with --into and the directory that the job reads."
    )


def _corrected(file: Path) -> str:
    with file.open("rb") as source:
        raw = source.read(ROW_FILE_BYTES_MAX + 1)
    if len(raw) > ROW_FILE_BYTES_MAX:
        raise CommandError(
            f"--row {file} has more than {ROW_FILE_BYTES_MAX:,} bytes. Nothing was changed.",
            ExitCode.USAGE,
        )
    text = raw.decode("utf-8-sig").strip()
    if not text:
        raise CommandError(f"--row {file} is empty. Nothing was changed.", ExitCode.USAGE)
    return text
