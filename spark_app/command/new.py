"""`holdfast job new`: a job of one's own, from the files of docs/examples/order_review.

The example is the template, so that what is written is what its tests have run. It needs neither
Spark nor a database.
"""

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.shell import shell_word

EXAMPLE = "order_review"
"""The name of the example, wherever one of its files has it."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
"""A stream, the beginning of types and keys, and of a table of the receiver."""

NEXT = (
    "PY=python                       # or the Python that has your Spark and the sink",
    "$PY -m pytest                   # the decisions, without a database; it needs a Java",
    "holdfast db upgrade             # the tables, in the database of HOLDFAST_DSN",
    "$PY job.py --available-now      # the job, over events/",
)


def new(
    name: Annotated[
        str, typer.Argument(help="The job's name: its stream, and how types and keys begin.")
    ],
    directory: Annotated[
        Path | None,
        typer.Option(help="The directory to write.", show_default="NAME, in the current one"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write a job of your own to begin with: decisions, policy, events, tests and a receiver.

    docs/spark/own-job.md leads through it. Nothing is replaced.
    """
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"{name!r} is not a valid name of a job: expected 1 to 50 of a-z, 0-9 and '_', the"
            " first a letter. Nothing was written; choose another name.",
            ExitCode.USAGE,
            code="invalid_name",
        )
    to = Path(name) if directory is None else directory
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise CommandError(
            f"{to} exists already. Nothing was written; name another directory with --directory.",
            ExitCode.USAGE,
            code="directory_exists",
        )
    written = []
    for path, text in _template():
        place = to / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text.replace(EXAMPLE, name), encoding="utf-8")
        written.append(str(path))
    commands = [f"cd {shell_word(str(to))}", *NEXT]
    if as_json:
        typer.echo(json.dumps({"directory": str(to), "files": written, "next": commands}))
    else:
        typer.echo(f"Written to {to}: {', '.join(written)}. Next:\n")
        typer.echo("\n".join(f"    {command}" for command in commands))


def _template() -> Iterator[tuple[Path, str]]:
    """Yield the relative path and the text of each file of the example."""
    job = find_spec(f"holdfast.examples.{EXAMPLE}.job")
    assert job is not None and job.origin  # noqa: PT018, S101 - the wheel has it
    example = Path(job.origin).parent
    for path in sorted(example.rglob("*")):
        inside = path.relative_to(example)
        if path.is_file() and _MADE.isdisjoint(inside.parts):
            yield inside, path.read_text(encoding="utf-8")


_MADE = {"__pycache__", ".pytest_cache", "checkpoint"}
"""Folders that a run of the example leaves in a clone."""
