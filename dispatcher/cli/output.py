"""What commands print: JSON, tables, text of unknown origin, and export files."""

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from inspect import cleandoc
from pathlib import Path
from textwrap import fill
from typing import IO, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from rich.text import Text

from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, needs_text, shortened, visible
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.shell import shell_word

__all__ = [
    "Page",
    "console",
    "counted",
    "display",
    "export_rows",
    "help_of",
    "json_default",
    "open_output",
    "print_facts",
    "print_json",
    "print_needs",
    "print_page",
    "print_rows",
    "set_wide",
    "shortened",
    "visible",
    "whole_file",
]

PIPE_COLUMNS = 10_000
_WIDE: ContextVar[bool] = ContextVar("wide", default=False)

BORDER = 1
PADDING = 2
TEXT_WIDTH = 24
"""A column of text wraps at its words down to this width before another column is left out."""


def print_json(value: Any) -> None:
    """Print `value` as indented JSON; times in RFC 3339."""
    json.dump(value, sys.stdout, indent=2, default=json_default)
    sys.stdout.write("\n")


def json_default(value: Any) -> str:
    """Return a value that JSON has no type for as text; times in RFC 3339."""
    return rfc3339(value) if isinstance(value, datetime) else str(value)


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    title: str,
    leave_out: Sequence[str] = (),
) -> None:
    """Print rows as a table that fits the terminal; colours only on a terminal.

    Where it is too narrow, columns are left out, those of `leave_out` first, then from the right,
    and named below; where not even two fit, each row is a record. `--wide` keeps every column.
    """
    cells = {name: [_cell(row[name]) for row in rows] for name in columns}
    measured = [column(visible(name), cells[name]) for name in columns]
    shown = console()
    fitted = fit(measured, shown.width, leave_out)
    if fitted is None and rows:
        _print_records(cells, columns, title)
        return
    widths = fitted.widths if fitted else {each.name: each.natural for each in measured}
    table = Table(title=title, title_justify="left", header_style="bold")
    kept = [name for name in columns if visible(name) in widths]
    for name in kept:
        heading = Text(visible(name.replace("_", " ")))
        table.add_column(heading, overflow="fold", width=widths[visible(name)])
    for number in range(len(rows)):
        table.add_row(*(Text(cells[name][number]) for name in kept))
    shown.print(table)
    if fitted is not None and fitted.left_out:
        names = ", ".join(each.replace("_", " ") for each in fitted.left_out)
        typer.echo(fill(f"not shown: {names} (--wide shows every column)", shown.width))


def _print_records(cells: Mapping[str, Sequence[str]], columns: Sequence[str], title: str) -> None:
    typer.echo(title)
    pad = max(len(name) for name in columns)
    for number in range(len(cells[columns[0]])):
        typer.echo("")
        print_facts({name: cells[name][number] for name in columns}, pad)


def print_facts(facts: Mapping[str, Any], width: int) -> None:
    """Print one indented line for each fact, its name padded to `width`."""
    for name, value in facts.items():
        typer.echo(f"  {name.replace('_', ' '):<{width}} {display(value)}")


def print_needs(needs: Sequence[Row]) -> None:
    """Print what needs a person, each with its command."""
    for line in needs_text(needs):
        typer.echo(line)


def console() -> Console:
    """Return a console on standard output: no colours when piped or when NO_COLOR is set.

    A pipe, and a list with `--wide`, get lines of any length, so that no value is wrapped.
    """
    fits = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = None if fits and not _WIDE.get() else PIPE_COLUMNS
    plain = True if os.environ.get("NO_COLOR") else None
    return Console(no_color=plain, highlight=False, width=width)


def set_wide(value: bool) -> None:
    """Keep every column of the lists of this command: the callback of `--wide`."""
    _WIDE.set(value)


@contextmanager
def open_output(output: Path | None) -> Iterator[IO[str]]:
    """Yield the file, which is written whole or not at all; standard output without one."""
    try:
        if output is not None:
            with whole_file(output) as file:
                yield file
        else:
            yield sys.stdout
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed its end, as `head` does. That is not an error.
        if output is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        elif not output.is_fifo():
            raise
        raise typer.Exit(ExitCode.OK) from None


def export_rows(rows: Iterable[Row], count: int, output: Path | None, noun: str) -> None:
    """Write rows as JSON lines; with a file, show a progress bar and report the `count`."""
    errors = Console(stderr=True)
    if output is not None and errors.is_terminal:
        rows = track(rows, "Exporting", count, console=errors, transient=True)
    with open_output(output) as file:
        for row in rows:
            file.write(json.dumps(row, default=json_default, ensure_ascii=False) + "\n")
    if output is not None:
        typer.echo(f"{counted(count, noun)} written to {output}")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """Yield a file that is renamed to `path` when the block succeeds, and removed when it fails.

    Until then it has a hidden name in the same directory, which Spark's file source ignores.
    Symbolic links are followed. A pipe or a device is written to directly. Raises `CommandError`
    (usage) where `path` is a directory or its directory does not exist.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        # Before links are followed: /dev/fd/N resolves to a name that cannot be opened.
        with path.open("w", encoding="utf-8") as stream:
            yield stream
        return
    path = _destination(path)
    # The file's own name may already have the maximum length, so it is not part of this one.
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("x", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _flush_directory(path.parent)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case datetime():
            return rfc3339(value.replace(microsecond=0))
        case list():
            return ", ".join(visible(str(item)) for item in value) or "-"
        case _:
            # A subject or an error is of unknown origin, and may hold what controls a terminal.
            return "\n".join(visible(line) for line in str(value).split("\n"))


def _destination(path: Path) -> Path:
    real = path.resolve()
    if real.is_dir():
        raise CommandError(
            f"{path} is a directory. Nothing was written; name a file.",
            ExitCode.USAGE,
            code="output_unwritable",
        )
    if not real.parent.is_dir():
        raise CommandError(
            f"the directory of {path} does not exist. Nothing was written; create it first.",
            ExitCode.USAGE,
            code="output_unwritable",
        )
    return real


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its natural width, and the one below which a word or a key would be cut."""

    name: str
    natural: int
    least: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit, with the width of each, and the names of those that do not."""

    widths: Mapping[str, int]
    left_out: Sequence[str]


def column(name: str, cells: Sequence[str]) -> Column:
    """Measure a column with its heading.

    >>> column("id", ["17", "1804"])
    Column(name='id', natural=4, least=4)
    >>> column("reason", ["the amount is no integer and no decimal"])
    Column(name='reason', natural=39, least=24)
    """
    lines = [name.replace("_", " ")] + [line for cell in cells for line in cell.splitlines()]
    natural = max(map(cell_len, lines))
    word = max((cell_len(word) for line in lines for word in line.split()), default=0)
    return Column(name, natural, max(word, min(natural, TEXT_WIDTH)))


def fit(columns: Sequence[Column], width: int, ranks: Sequence[str] = ()) -> Layout | None:
    """Choose the columns that fit `width`; None where fewer than two do.

    The columns of `ranks` are left out first, in that order, then the others from the right.

    >>> id_, why = Column("id", 4, 4), Column("why", 60, 24)
    >>> fit([id_, why], 80)
    Layout(widths={'id': 4, 'why': 60}, left_out=[])
    >>> fit([id_, why], 50)
    Layout(widths={'id': 4, 'why': 39}, left_out=[])
    >>> fit([id_, why, Column("key", 35, 35)], 60)
    Layout(widths={'id': 4, 'why': 49}, left_out=['key'])
    >>> fit([Column("key", 35, 35), Column("other", 35, 35)], 60) is None
    True
    """
    kept = list(columns)
    left_out: list[str] = []
    later = [each.name for each in columns if each.name not in ranks]
    going = [*ranks, *reversed(later)]
    while _width(kept) > width:
        if len(kept) <= min(2, len(columns)):
            return None
        name = going.pop(0)
        kept = [each for each in kept if each.name != name]
        left_out.append(name)
    spare = width - _width(kept)
    widths = {}
    for each in kept:
        extra = min(spare, each.natural - each.least)
        widths[each.name] = each.least + extra
        spare -= extra
    return Layout(widths, left_out)


def _width(columns: Sequence[Column]) -> int:
    return BORDER + sum(each.least + PADDING + BORDER for each in columns)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of rows under the name that they have in JSON, here and in the API."""

    name: str
    rows: Sequence[Row]
    further: Any = None
    """The cursor of the next page; None on the last, and where a list has one page."""

    option: str = "before"
    """The option that takes the cursor."""

    about: Row | None = None
    """What the rows have in common, as members beside them."""

    def content(self) -> Row:
        """Return what `--json` prints: the rows, and the cursor as `next_before`."""
        return {**(self.about or {}), self.name: self.rows, f"next_{self.option}": self.further}


def _cursor(further: Any) -> str:
    return further if isinstance(further, str) else display(further)


def print_page(
    page: Page, show: Callable[[Sequence[Row]], None], nothing: str, *, as_json: bool
) -> None:
    """Print a page as JSON or by `show`, and how to get the next one.

    Raises `CommandError` (nothing matched) with the text `nothing` for an empty list; its JSON is
    printed before.
    """
    if as_json:
        print_json(page.content())
    elif page.rows:
        show(page.rows)
    if not page.rows and page.further is None:
        raise CommandError(nothing, ExitCode.NOTHING_MATCHED, code="nothing_matched")
    if not as_json and page.further is not None:
        kind = "older" if page.option == "before" else "more"
        typer.echo(f"{kind} rows: --{page.option} {shell_word(_cursor(page.further))}")


def help_of(text: str) -> str:
    r"""Return a docstring as help text: one line for each paragraph, no markup in brackets.

    >>> help_of("Make it.\n\n    [endpoint.NAME] is\n    a table.")
    'Make it.\n\n\\[endpoint.NAME] is a table.'
    """
    paragraphs = cleandoc(text).split("\n\n")
    return escape("\n\n".join(" ".join(each.split()) for each in paragraphs))
