"""`job inspect`: read a merchant's state and print it."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.text import Text

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint.shape import FILE
from holdfast.spark_app.input.source import absolute
from holdfast.spark_app.input.validate import ID_CHARACTERS_MAX
from holdfast.spark_app.inspection import document
from holdfast.spark_app.inspection.diff import Change, Difference, WindowChange, difference
from holdfast.spark_app.inspection.document import StateLocation
from holdfast.spark_app.inspection.reader import (
    CheckpointInfo,
    Operator,
    StateReader,
    no_checkpoint,
)
from holdfast.spark_app.inspection.view import Due, Merchant, Snapshot, Timer, Window, view
from holdfast.spark_app.lifecycle.failure import diagnose
from holdfast.spark_app.operator.groups import key_group
from holdfast.spark_app.runtime.engine import start_quietly
from holdfast.spark_app.runtime.java import require_java
from holdfast.spark_app.runtime.launch import Launch, launched_by_spark_submit

IDS_SHOWN = 5

_MARKS = {Change.APPEARED: "+", Change.CHANGED: "~", Change.GONE: "-"}
_STYLES = {Change.APPEARED: "green", Change.CHANGED: "", Change.GONE: "red"}
_DUE = {Due.EMIT: "emit", Due.EXPIRE: "expire", Due.CLOSE_EMPTY: "close"}

_INDENT = "  "

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_AMOUNT = 2
"""The cell that is right-aligned."""


class _Line(NamedTuple):
    """One line for a window; its cells are aligned with those of the other lines."""

    start_us: int
    cells: Sequence[str]
    style: str = ""


def inspected(location: StateLocation, snapshot: Snapshot, merchant: Merchant) -> Iterator[Text]:
    """Yield the lines of a merchant's state after a batch."""
    today = _today(snapshot, merchant)
    yield Text.assemble(
        (_safe(location.merchant_id), "bold"),
        _INDENT,
        ("held", "bold red") if merchant.held else "not held",
        f" · {_emitted(merchant.latest_end_us, today)}",
        f" · after batch {snapshot.batch} · {_watermark(snapshot)}",
    )
    lines = [_window(window) for window in merchant.windows]
    if merchant.next_empty_us is not None and merchant.latest_end_us is not None:
        lines.append(_next_empty(merchant.latest_end_us, merchant.next_empty_us))
        lines.sort(key=lambda line: line.start_us)
    yield from _by_day(lines)
    if not lines:
        yield Text(f"{_INDENT}no window that is open or can be revised")
    yield from _footer(location, snapshot)


def compared(location: StateLocation, found: Difference) -> Iterator[Text]:
    """Yield the lines of what changed for a merchant between two batches."""
    before, after = found.before, found.after
    today = None if after.judged_us is None else day(after.judged_us)
    yield Text.assemble(
        (_safe(location.merchant_id), "bold"),
        f"{_INDENT}after batch {before.batch} ({_watermark(before)})"
        f" -> after batch {after.batch} ({_watermark(after)})",
    )
    if not found.changed:
        yield Text(f"{_INDENT}nothing changed")
        return
    was_held, is_held = found.held
    if was_held != is_held:
        yield Text(f"{_INDENT}{_hold(was_held)} -> {_hold(is_held)}", "bold red" if is_held else "")
    was, now = (_emitted(end_us, today) for end_us in found.latest_end_us)
    if was != now:
        yield Text(f"{_INDENT}{was} -> {now}")
    yield from _by_day([_window_change(change) for change in found.windows])
    yield from _timer_changes("due now", found.timers_set, today)
    yield from _timer_changes("no longer due", found.timers_gone, today)


def _watermark(snapshot: Snapshot) -> str:
    return (
        "no watermark yet"
        if snapshot.judged_us is None
        else f"watermark {instant(snapshot.judged_us)}"
    )


def _hold(held: bool) -> str:
    return "held" if held else "not held"


def _emitted(latest_end_us: int | None, today: date | None) -> str:
    if latest_end_us is None:
        return "nothing emitted yet"
    return f"emitted up to {clock(latest_end_us, today)}"


def _today(snapshot: Snapshot, merchant: Merchant) -> date | None:
    """Return the date that the heading shows, which the lines omit."""
    if snapshot.judged_us is not None:
        return day(snapshot.judged_us)
    return day(merchant.windows[0].start_us) if merchant.windows else None


def _window(window: Window) -> _Line:
    return _Line(
        window.start_us,
        [
            span(window.start_us, window.end_us),
            _status(window) + ("" if window.is_open else " (revisable)"),
            f"{window.exposure_minor:,}",
            *_due_of(window),
            _ids(window.event_ids),
        ],
        "" if window.is_open else "dim",
    )


def _next_empty(latest_end_us: int, closes_us: int) -> _Line:
    today = day(latest_end_us)
    return _Line(
        latest_end_us,
        [
            span(latest_end_us, closes_us),
            "no event yet",
            "",
            f"close@{clock(closes_us, today)}",
            "",
            "the hold closes it empty",
        ],
    )


def _window_change(change: WindowChange) -> _Line:
    before, after = change.before or change.window, change.after or change.window
    ids = [*_first(change.absorbed, "+"), *_first(change.forgotten, "-")]
    return _Line(
        change.window.start_us,
        [
            f"{_MARKS[change.change]} {span(change.window.start_us, change.window.end_us)}",
            _arrow(_status(before), _status(after)),
            _arrow(f"{before.exposure_minor:,}", f"{after.exposure_minor:,}"),
            " ".join(ids),
            _end(change),
        ],
        _STYLES[change.change],
    )


def _end(change: WindowChange) -> str:
    if change.change is not Change.GONE:
        return ""
    return "emitted, then forgotten" if change.window.is_open else "forgotten"


def _status(window: Window) -> str:
    status = "open" if window.is_open else f"emitted rev {window.revision}"
    for count, word in ((window.blocks, "block"), (window.releases, "release")):
        if count:
            status += f", {count} {word}{'s' if count > 1 else ''}"
    return status


def _due_of(window: Window) -> tuple[str, str]:
    today = day(window.start_us)
    emit = "" if window.emit_us is None else f"emit@{clock(window.emit_us, today)}"
    return emit, f"expire@{clock(window.expire_us, today)}"


def _ids(event_ids: Sequence[str]) -> str:
    return f"ids {len(event_ids):,}: {' '.join(_first(event_ids))}" if event_ids else "no ids"


def _first(event_ids: Sequence[str], sign: str = "") -> Iterator[str]:
    for event_id in event_ids[:IDS_SHOWN]:
        yield sign + _safe(event_id)
    if len(event_ids) > IDS_SHOWN:
        yield f"and {len(event_ids) - IDS_SHOWN:,} more"


def _timer_changes(words: str, timers: Sequence[Timer], today: date | None) -> Iterator[Text]:
    if timers:
        shown = "  ".join(f"{_DUE[timer.due]}@{clock(timer.at_us, today)}" for timer in timers)
        yield Text(f"{_INDENT}{words}: {shown}")


def _footer(location: StateLocation, snapshot: Snapshot) -> Iterator[Text]:
    if snapshot.settled_until_us is not None:
        yield Text(
            f"windows up to {instant(snapshot.settled_until_us)} were settled before this"
            " checkpoint; it never opens them again"
        )
    due = (
        "waits for events"
        if snapshot.group_timer_us is None
        else f"has its timer at {instant(snapshot.group_timer_us)}"
    )
    yield Text(f"key group {location.key_group}, one of {location.key_groups}, {due}", "dim")


def _by_day(lines: Iterable[_Line]) -> Iterator[Text]:
    """Align the lines, with a date line before those of each day."""
    lines = list(lines)
    columns = list(zip(*(line.cells for line in lines), strict=True))
    widths = [max(map(len, column)) for column in columns]
    for date_, of_day in groupby(lines, key=lambda line: day(line.start_us)):
        yield Text(f"{date_.isoformat()} UTC", "dim")
        for line in of_day:
            text = _INDENT.join(
                cell.rjust(width) if number == _AMOUNT else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(line.cells, widths, strict=True))
                if width
            )
            yield Text(_INDENT + text.rstrip(), line.style)


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _safe(text: str) -> str:
    """Return text without control characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def day(moment_us: int) -> date:
    """Return the UTC date of a moment."""
    return _moment(moment_us).date()


def clock(moment_us: int, today: date | None = None) -> str:
    """Return a moment's UTC clock time, after its date when that is not `today`.

    Seconds and their fraction are shown only where they are not zero.

    >>> clock(1_730_723_400_000_000, date(2024, 11, 4))
    '12:30'
    >>> clock(1_730_723_370_500_000)
    '2024-11-04 12:29:30.5'
    """
    moment = _moment(moment_us)
    text = f"{moment:%H:%M}"
    if moment.second or moment.microsecond:
        text = f"{moment:%H:%M:%S}"
    if moment.microsecond:
        text += f".{moment.microsecond:06}".rstrip("0")
    return text if moment.date() == today else f"{moment.date().isoformat()} {text}"


def instant(moment_us: int) -> str:
    """Return a moment in full.

    >>> instant(1_730_723_370_000_000)
    '2024-11-04 12:29:30Z'
    """
    moment = _moment(moment_us)
    seconds = f"{moment:%H:%M:%S}"
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""
    return f"{moment.date().isoformat()} {seconds}{fraction}Z"


def span(start_us: int, end_us: int) -> str:
    """Return a window's clock times, without its date.

    >>> span(1_730_722_500_000_000, 1_730_723_400_000_000)
    '12:15-12:30'
    """
    return f"{clock(start_us, day(start_us))}-{clock(end_us, day(end_us))}"


def _moment(moment_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=moment_us)


@dataclass(frozen=True, slots=True)
class Question:
    """The merchant and the batches to show."""

    checkpoint: str
    merchant_id: str
    batch: int | None = None
    """None for the newest committed one."""
    diff: tuple[int, int] | None = None
    """Show instead what changed between two batches."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The output as JSON and as text."""

    document: dict[str, Any]
    text: list[Text]
    nothing: str | None = None
    """Why nothing was found, as a message."""


def run(question: Question, launch: Launch | None = None, *, as_json: bool) -> None:
    """Print the answer on stdout; raises CommandError, with exit code 3 for an unknown merchant."""
    _require_id(question.merchant_id)
    checkpoint = absolute(question.checkpoint)
    # Before the start of Spark, so that a wrong path fails at once.
    if checkpoint.startswith("/") and not Path(checkpoint, FILE).is_file():
        raise no_checkpoint(checkpoint)
    if not launched_by_spark_submit():
        require_java()
    spark = start_quietly("holdfast inspect", launch)
    try:
        answer = ask(spark, question)
    finally:
        # A JVM that has died was reported already.
        with suppress(Py4JError, OSError):
            spark.stop()
    if as_json:
        json.dump(answer.document, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _print(answer.text)
    if answer.nothing is not None:
        raise CommandError(answer.nothing, ExitCode.NOTHING_MATCHED, code="nothing_matched")


def ask(spark: SparkSession, question: Question) -> Answer:
    """Return the answer; raises CommandError for what does not exist or cannot be read."""
    try:
        return _answer(spark, question, absolute(question.checkpoint))
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise CommandError(
            f"{question.checkpoint} cannot be read: {diagnose(error).said.rstrip('.')}. Nothing was"
            " changed.",
            code="checkpoint_unreadable",
        ) from error


def _answer(spark: SparkSession, question: Question, checkpoint: str) -> Answer:
    info, reader = CheckpointInfo(spark, checkpoint), StateReader(spark, checkpoint)
    begun = info.settings()
    group = key_group(question.merchant_id, begun.key_groups)
    operator = reader.operator()
    location = StateLocation(
        checkpoint=checkpoint,
        merchant_id=question.merchant_id,
        stream=begun.stream,
        key_group=group,
        key_groups=len(begun.key_groups),
        batches=None if operator is None else (operator.oldest, operator.newest),
    )
    if operator is None:
        return Answer(
            document.unbegun(location),
            [],
            f"{checkpoint} has no committed batch yet: try again later.",
        )
    batches = question.diff or (question.batch if question.batch is not None else operator.newest,)
    _require(operator, batches)
    judged_us = {batch: info.watermark_us(batch) for batch in batches}
    remembered = reader.key_group(operator, group, batches)
    snapshots = [
        Snapshot(
            batch=batch,
            judged_us=judged_us[batch],
            group_timer_us=remembered[batch].timer_us,
            settled_until_us=remembered[batch].state.settled_until_us,
            merchant=view(remembered[batch].state, question.merchant_id, begun.settings),
        )
        for batch in batches
    ]
    return (
        _inspected(location, *snapshots) if len(snapshots) == 1 else _compared(location, *snapshots)
    )


def _inspected(location: StateLocation, snapshot: Snapshot) -> Answer:
    found = document.inspected(location, snapshot)
    if snapshot.merchant is None:
        return Answer(found, [], _nothing(location, f"after batch {snapshot.batch}"))
    return Answer(found, list(inspected(location, snapshot, snapshot.merchant)))


def _compared(location: StateLocation, before: Snapshot, after: Snapshot) -> Answer:
    found = difference(before, after)
    answer = document.compared(location, found)
    if not found.known:
        where = f"after batch {before.batch} nor after batch {after.batch}"
        return Answer(answer, [], _nothing(location, where))
    return Answer(answer, list(compared(location, found)))


def _nothing(location: StateLocation, where: str) -> str:
    return (
        f"there is no state of the merchant {location.merchant_id} {where}: it is not held and has"
        " no window that is open or can be revised. Its published windows are in exposure_window."
    )


def _require_id(merchant_id: str) -> None:
    if not 0 < len(merchant_id) <= ID_CHARACTERS_MAX or min(merchant_id) < " ":
        raise CommandError(
            f"--merchant is not the id of a merchant: it has 1 to {ID_CHARACTERS_MAX} characters,"
            " and none below U+0020. Nothing was read.",
            ExitCode.USAGE,
            code="invalid_merchant",
        )


def _require(operator: Operator, batches: Iterable[int]) -> None:
    for batch in batches:
        if not operator.oldest <= batch <= operator.newest:
            when = "is not committed yet" if batch > operator.newest else "is no longer available"
            raise CommandError(
                f"batch {batch} {when}: the state can be read after the batches"
                f" {operator.oldest} to {operator.newest}. Nothing was changed.",
                ExitCode.NOTHING_MATCHED,
                code="batch_not_kept",
            )


def _print(lines: Iterable[Text]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line)
