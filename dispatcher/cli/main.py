"""The root of the `holdfast` command: which groups there are, and how an error reaches a person."""

import os
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dispatcher.cli.common.help_text import tell
from sink.contract.exits import CommandError, ExitCode

OWN_PACKAGES = ("sink", "dispatcher", "migrations", "spark_app", "deploy")

COMMANDS = {
    "status": "status:status",
    "overview": "overview:show",
    "database": "database.database:look",
    "receipts": "subjects.receipts:receipts",
    "redeliver": "replays.redeliver:redeliver",
    "reissue": "replays.reissue:reissue",
    "check": "database.check:check_command",
    "why": "entries.why:explain",
    "trace": "entries.trace:show",
    "dispatch": "dispatch:dispatch",
    "listen": "workbench.listen:listen",
    "trigger": "workbench.trigger:trigger",
    "sign": "workbench.sign:sign",
    "verify": "workbench.verify:verify",
    "conform": "workbench.conform:conform",
    "endpoint": "endpoints.endpoint:app",
    "stream": "stream:app",
    "batch": "batch:app",
    "entries": "entries.entries:app",
    "attempts": "entries.attempts:app",
    "subjects": "subjects.subjects:app",
    "dispatchers": "dispatchers:app",
    "audit": "audit:app",
    "quarantine": "quarantine.quarantine:app",
    "suppressed": "subjects.suppressed:app",
    "dead": "dead:app",
    "replay": "replays.replay:app",
    "proposal": "proposals:app",
    "config": "database.config:app",
    "api": "api:app",
    "token": "tokens:app",
}
"""The dispatcher's own commands and groups in the order of the help, each with its place here."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Transactional outbox sink and side-effect gateway for Spark."""


def application(first: list[str]) -> typer.Typer:
    """Return the command. Of what it can do, the word `first` needs no more than is loaded here.

    Everything is loaded for help, for completion and for a word that is no command; nothing for
    the version.
    """
    app = typer.Typer(
        name="holdfast",
        help="Transactional outbox sink and side-effect gateway for Spark.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        callback=root,
    )
    points = {point.name: point for point in entry_points(group="holdfast.commands")}
    known = {*COMMANDS, *points}
    wanted = set() if first == ["--version"] else known.intersection(first) or known
    for name, place in COMMANDS.items():
        if name in wanted:
            _add(app, name, place)
    for name in sorted(wanted.intersection(points)):
        app.add_typer(_load(points[name], wanted=first == [name]), name=name)
    tell(app)
    return app


def _add(app: typer.Typer, name: str, place: str) -> None:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"dispatcher.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found)


def main() -> None:
    """Run the command; the process ends with one of `ExitCode`."""
    _prepare_output()
    try:
        application(sys.argv[1:2])()
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
                " pip install '/path/to/holdfast[local]' installs every part.",
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
