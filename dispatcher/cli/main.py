"""The root of the `holdfast` command: its groups, their help texts, and how errors are printed."""

import os
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from inspect import cleandoc
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.main import get_command

from holdfast.dispatcher.cli.options import AsJson
from holdfast.dispatcher.cli.output import print_json
from holdfast.dispatcher.operators.common.text import visible
from holdfast.sink.contract import standard_error
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import exact

COMMANDS = {
    "status": "overview:status",
    "overview": "overview:overview",
    "database": "database:database",
    "receipts": "receipts:receipts",
    "redeliver": "replays.redeliver:redeliver",
    "reissue": "replays.reissue:reissue",
    "check": "check:check",
    "why": "why:explain",
    "trace": "trace:show",
    "dispatch": "dispatch:dispatch",
    "listen": "workbench.listen:listen",
    "trigger": "workbench.trigger:trigger",
    "sign": "workbench.sign:sign",
    "verify": "workbench.verify:verify",
    "conform": "workbench.conform:conform",
    "endpoint": "endpoints.commands:app",
    "stream": "streams:app",
    "batch": "batches:app",
    "entries": "entries:app",
    "attempts": "attempts:app",
    "subjects": "subjects:app",
    "dispatchers": "dispatchers:app",
    "audit": "audit:app",
    "quarantine": "quarantine.commands:app",
    "suppressed": "suppressed:app",
    "late": "late_events:app",
    "dead": "dead_letters:app",
    "replay": "replays.commands:app",
    "proposal": "proposals:app",
    "config": "config:app",
    "api": "api:app",
    "token": "tokens:app",
}
"""The dispatcher's own commands and groups in the order of the help: name to module:attribute."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


def show_version(as_json: AsJson = False) -> None:
    """Print the version; `holdfast config show` has those of its parts."""
    if as_json:
        print_json({"version": version("holdfast")})
    else:
        _show_version(wanted=True)


def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Transactional outbox sink and side-effect gateway for Spark."""


def application(first: list[str]) -> typer.Typer:
    """Return the command with only the group loaded that `first`, its first argument, names.

    All groups are loaded for help, for completion and for an unknown word; none for --version.
    """
    app = typer.Typer(
        name="holdfast",
        help="Transactional outbox sink and side-effect gateway for Spark.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=root,
    )
    points = {point.name: point for point in entry_points(group="holdfast.commands")}
    known = {*COMMANDS, *points}
    app.command("version")(show_version)
    wanted = set() if first in (["--version"], ["version"]) else known.intersection(first) or known
    for name, place in COMMANDS.items():
        if name in wanted:
            _add(app, name, place)
    for name in sorted(wanted.intersection(points)):
        app.add_typer(_load(points[name], wanted=first == [name]), name=name)
    fill_help(app)
    return app


@cache
def command(*first: str) -> Any:
    """Return the command of `application`, whose numbers are digits and nothing else.

    Finding the groups takes most of the time of a short command.
    """
    return exact(get_command(application(list(first))), typer.BadParameter)


def _add(app: typer.Typer, name: str, place: str) -> None:
    module, _, attribute = place.partition(":")
    command = getattr(import_module(f"holdfast.dispatcher.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def help_of(text: str) -> str:
    r"""Return a docstring as help text: one line for each paragraph, no markup in brackets.

    >>> help_of("Make it.\n\n    [endpoint.NAME] is\n    a table.")
    'Make it.\n\n\\[endpoint.NAME] is a table.'
    """
    paragraphs = cleandoc(text).split("\n\n")
    return escape("\n\n".join(" ".join(each.split()) for each in paragraphs))


def fill_help(app: typer.Typer) -> None:
    """Set the docstring as help of every command of `app` and its groups that has none."""
    for command in app.registered_commands:
        if command.help is None and command.callback is not None and command.callback.__doc__:
            command.help = help_of(command.callback.__doc__)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            fill_help(group.typer_instance)


def main() -> None:
    """Run the command; the process exits with one of `ExitCode`."""
    _prepare_output()
    try:
        try:
            command(*sys.argv[1:2])()
        finally:
            _write_out()
    except CommandError as error:
        _print_error(str(error))
        sys.exit(error.exit_code)
    except UnicodeError:
        _print_error("an argument or an answer is not UTF-8 text. Nothing was changed.")
        sys.exit(ExitCode.USAGE)
    except OSError as error:
        _print_error(f"{error}. What was committed before is kept; see `holdfast status`.")
        sys.exit(ExitCode.FAILED)


def _prepare_output() -> None:
    """Make stdout and stderr writable, even if they are closed or not UTF-8; stderr if full."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    standard_error.install()


def _write_out() -> None:
    """Write what is buffered now: an error at the interpreter's own exit would be exit code 120.

    Raises OSError, except where the reader has closed its end, as `head` does.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        # The exit would try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise


def _load(point: EntryPoint, *, wanted: bool) -> typer.Typer:
    """Load a group. If its extra is not installed, the help shows a placeholder."""
    try:
        loaded: typer.Typer = point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "holdfast":
            raise
        if wanted:
            raise CommandError(
                f"`holdfast {point.name}` needs the package {missing}, which is not installed:"
                " pip install '/path/to/holdfast[local]' installs every part.",
                ExitCode.USAGE,
                code="package_missing",
            ) from None
        return typer.Typer(help=f"(not installed: needs {missing})", callback=lambda: None)
    return loaded


def _print_error(message: str) -> None:
    lines = "\n".join(map(visible, message.split("\n")))
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]holdfast:[/] {escape(lines)}", markup=True
    )


if __name__ == "__main__":
    main()
