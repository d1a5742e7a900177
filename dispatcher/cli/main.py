"""The root of the `holdfast` command: which groups there are, and how an error reaches a person."""

import os
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points, version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dispatcher.cli import batch, dispatch, endpoint, quarantine, status, stream
from sink.contract.exits import CommandError, ExitCode

OWN_PACKAGES = ("sink", "dispatcher", "migrations", "spark_app", "deploy")

app = typer.Typer(
    name="holdfast",
    help="Transactional outbox sink and side-effect gateway for Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Transactional outbox sink and side-effect gateway for Spark."""


app.command("status")(status.status)
app.command("dispatch")(dispatch.dispatch)
app.add_typer(endpoint.app, name="endpoint")
app.add_typer(stream.app, name="stream")
app.add_typer(batch.app, name="batch")
app.add_typer(quarantine.app, name="quarantine")


def main() -> None:
    """Run the command; the process ends with one of `ExitCode`."""
    _prepare_output()
    first = sys.argv[1:2]
    try:
        for point in _needed(entry_points(group="holdfast.commands"), first):
            app.add_typer(_load(point, wanted=first == [point.name]), name=point.name)
        app()
    except CommandError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except UnicodeError:
        _complain("an argument or an answer is not UTF-8 text. Nothing was changed.")
        sys.exit(ExitCode.USAGE)
    except OSError as error:
        _complain(f"{error}. What was committed before stays; see `holdfast status`.")
        sys.exit(ExitCode.FAILED)


def _prepare_output() -> None:
    """Give every command streams it can write to, whatever the caller closed or the locale is."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
    for stream_ in (sys.stdout, sys.stderr):
        if isinstance(stream_, TextIOWrapper):
            stream_.reconfigure(errors="backslashreplace")


def _needed(points: Iterable[EntryPoint], first: list[str]) -> list[EntryPoint]:
    """Choose the groups to load: one that is named costs only its own imports.

    Everything is loaded for help, for completion and for a word that is no command.
    """
    known = {point.name: point for point in points}
    own = {command.name for command in app.registered_commands}
    own |= {group.name for group in app.registered_groups}
    if first and first[0] in known:
        return [known[first[0]]]
    return [] if first and first[0] in own else [known[name] for name in sorted(known)]


def _load(point: EntryPoint, *, wanted: bool) -> typer.Typer:
    """Load a group. One whose extra is not installed is only named in the help."""
    try:
        loaded: typer.Typer = point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OWN_PACKAGES:
            raise
        if wanted:
            raise CommandError(
                f"`holdfast {point.name}` needs the package {missing}, which is not installed:"
                " pip install 'holdfast[local]' installs every part.",
                ExitCode.USAGE,
            ) from None
        return typer.Typer(help=f"(not installed: needs {missing})", callback=lambda: None)
    return loaded


def _complain(message: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]holdfast:[/] {escape(message)}", markup=True
    )


if __name__ == "__main__":
    main()
