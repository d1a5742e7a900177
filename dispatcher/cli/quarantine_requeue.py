"""Putting rows of the quarantine back: to the outbox as entries, or to the job as source lines."""

import re
from collections.abc import Mapping
from pathlib import Path

from dispatcher.cli.quarantine_corrected import corrected
from dispatcher.cli.quarantine_files import write_lines
from dispatcher.core.quarantine import is_entry
from dispatcher.operations.quarantine import all_resolved, can_go_back, resolved_among
from dispatcher.store.operator_session import Row
from dispatcher.store.quarantine import Quarantine
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import QuarantineResolution

ADVICE = (
    "`holdfast quarantine export` writes rows as lines: correct `row` there, and put it back with"
    " `holdfast quarantine requeue ID --row FILE --reason TEXT`"
)
"""What helps a row that was refused again."""

_LINE_BREAKS = re.compile(r"[\r\n]+")


def texts_of(rows: list[Row], file: Path | None, *, lines: bool) -> dict[int, str]:
    """Return what is put back for each row: the operator's corrected row, else the kept one.

    `lines` says that they go to the job. Raises `CommandError` where a row cannot go that way.
    """
    wrong = [row for row in rows if is_entry(row) == lines]
    if wrong:
        raise CommandError(_other_way(wrong[0], lines=lines), ExitCode.USAGE)
    kept = {row["id"]: row["row"] for row in rows}
    texts = kept if file is None else corrected(file, rows)
    can_go_back(rows, texts)
    if lines and file is not None:
        # Between the tokens of JSON a line break is a space.
        return {number: _LINE_BREAKS.sub(" ", text) for number, text in texts.items()}
    return texts


def put_lines(
    store: Quarantine, texts: Mapping[int, str], directory: Path, reason: str, before: list[Row]
) -> dict[int, Path]:
    """Write source lines for the job, a file each, and mark their rows; returns the files.

    A row that somebody else resolved meanwhile is not written, and is added to `before`. Raises
    `CommandError` where all were.
    """
    with store.alone(list(texts)) as rows:
        left = [row["id"] for row in rows if row["resolution"] is None]
        if not left:
            raise all_resolved(rows)
        paths = write_lines(directory, {number: texts[number] for number in left})
        files = {"files": [str(path.absolute()) for path in paths]}
        store.resolve(left, QuarantineResolution.REQUEUED, reason, files)
    before += resolved_among(rows)
    return dict(zip(left, paths, strict=True))


def _other_way(row: Row, *, lines: bool) -> str:
    if lines:
        return (
            f"row {row['id']} was refused as an entry ({row['reason']}), so no job reads it."
            " Nothing was changed; leave out --into for it, and correct it with --row FILE."
        )
    return (
        f"row {row['id']} was refused before it was an entry ({row['reason']}). Nothing was"
        " changed; give it back to the job with --into and the directory that the job reads,"
        " corrected with --row FILE."
    )
