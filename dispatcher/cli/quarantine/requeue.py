"""Putting rows of the quarantine back: to the outbox as entries, or to the job as source lines."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from dispatcher.cli.quarantine.corrected import corrected
from dispatcher.cli.quarantine.files import takes_lines, write_lines
from dispatcher.operators.common.session import Row
from dispatcher.operators.quarantine.actions import (
    Way,
    all_resolved,
    allowed,
    can_go_back,
    open_among,
    planned,
    proposed,
    put_entries,
    resolved_among,
)
from dispatcher.operators.quarantine.rules import is_entry
from dispatcher.operators.quarantine.store import Quarantine
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import QuarantineResolution

ADVICE = (
    "`holdfast quarantine export` writes rows as lines: correct `row` there, and put it back with"
    " `holdfast quarantine requeue ID --row FILE --reason TEXT`"
)
"""What helps a row that was refused again."""

_LINE_BREAKS = re.compile(r"[\r\n]+")


class PutBack(NamedTuple):
    """What became of rows."""

    done: list[Row]
    refused: list[Row]
    proposed: list[Row]
    """Decided by hand: nothing was written of them, and a second person has to approve it."""

    before: list[Row]
    """Resolved before."""


def put_back(
    dsn: str | None, store: Quarantine, ids: list[int], file: Path | None, way: Way, reason: str
) -> PutBack:
    """Put rows back, as they were kept or as `file` corrects them; propose what is by hand."""
    rows, before = open_among(store, ids)
    texts = texts_of(rows, file, lines=way.into is not None)
    if way.into is not None:
        takes_lines(Path(way.into))
    waiting = proposed(store, rows, texts, reason, way)
    names = {each["id"] for each in waiting}
    left = [row for row in rows if row["id"] not in names]
    done, refused = _written(dsn, store, left, texts, way, reason, before) if left else ([], [])
    return PutBack(done, refused, waiting, before)


def put_back_approved(
    dsn: str | None, store: Quarantine, number: int, proposal: UUID, reason: str
) -> PutBack:
    """Put the row back that a second person has approved, with the text that was approved."""
    rows, before = open_among(store, [number])
    text, way = planned(store, proposal, number)
    done, refused = _written(dsn, store, rows, {number: text}, way, reason, before, proposal)
    return PutBack(done, refused, [], before)


def _written(
    dsn: str | None,
    store: Quarantine,
    rows: list[Row],
    texts: Mapping[int, str],
    way: Way,
    reason: str,
    before: list[Row],
    proposal: UUID | None = None,
) -> tuple[list[Row], list[Row]]:
    if way.into is not None:
        mine = {row["id"]: texts[row["id"]] for row in rows}
        paths = put_lines(store, mine, Path(way.into), reason, before, proposal)
        return [{"id": each, "detail": f"in {path}"} for each, path in paths.items()], []
    return put_entries(
        dsn or "",
        store,
        rows,
        texts,
        reason,
        suppress_repeats=way.suppress_repeats,
        before=before,
        proposal=proposal,
    )


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
    store: Quarantine,
    texts: Mapping[int, str],
    directory: Path,
    reason: str,
    before: list[Row],
    proposal: UUID | None = None,
) -> dict[int, Path]:
    """Write source lines for the job, a file each, and mark their rows; returns the files.

    A text of another event than the kept row's is written only by an approved `proposal` of exactly
    it. A row that somebody else resolved meanwhile is not written, and is added to `before`. Raises
    `CommandError` where all were.
    """
    way = Way(into=str(directory.absolute()))
    with store.alone(list(texts)) as rows:
        left = [row for row in rows if row["resolution"] is None]
        if not left:
            raise all_resolved(rows)
        ids = [row["id"] for row in left]
        with ExitStack() as stack:
            said = [
                stack.enter_context(allowed(store, row, texts[row["id"]], way, proposal))
                for row in left
            ]
            paths = write_lines(directory, {number: texts[number] for number in ids})
            for number, path, each in zip(ids, paths, said, strict=True):
                detail = {"files": [str(path.absolute())], **each}
                store.resolve([number], QuarantineResolution.REQUEUED, reason, detail)
    before += resolved_among(rows)
    return dict(zip(ids, paths, strict=True))


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
