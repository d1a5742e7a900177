"""Options and output that the commands share."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sink.contract.canonical import rfc3339

PIPE_COLUMNS = 400

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]


def print_json(value: Any) -> None:
    """Print `value` as indented JSON; times in RFC 3339."""
    json.dump(value, sys.stdout, indent=2, default=_plain)
    sys.stdout.write("\n")


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> None:
    """Print rows as a table; colours only on a terminal."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[column])) for column in columns))
    console().print(table)


def console() -> Console:
    """Return standard output for people: no colours when piped or when NO_COLOR is set.

    A pipe has no edge, so that there a value is never broken into pieces.
    """
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_COLUMNS
    plain = True if os.environ.get("NO_COLOR") else None
    return Console(no_color=plain, highlight=False, width=width)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case datetime():
            return rfc3339(value.replace(microsecond=0))
        case list():
            return ", ".join(str(item) for item in value) or "-"
        case _:
            return str(value)


def _plain(value: Any) -> Any:
    return rfc3339(value) if isinstance(value, datetime) else str(value)
