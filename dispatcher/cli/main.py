"""The root of the `holdfast` command: its groups, their help texts, and how errors are printed."""

import json
import os
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from typer.main import get_command

from holdfast.dispatcher.cli import verbs
from holdfast.dispatcher.cli.options import AsJson
from holdfast.dispatcher.cli.output import help_of, print_json
from holdfast.dispatcher.operators import registry
from holdfast.dispatcher.operators.common.text import visible
from holdfast.sink.contract import standard_error
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import exact

DECLARED = ""
COMMANDS = {
    "triage": DECLARED,
    "status": "overview:status",
    "overview": "overview:overview",
    "database": DECLARED,
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
    "stream": DECLARED,
    "batch": DECLARED,
    "entry": "entries:app",
    "attempt": "attempts:app",
    "subject": DECLARED,
    "dispatcher": DECLARED,
    "audit": DECLARED,
    "decide": DECLARED,
    "quarantine": "quarantine.commands:app",
    "suppressed": DECLARED,
    "late-event": DECLARED,
    "dead-letter": DECLARED,
    "replay": "replays.commands:app",
    "proposal": DECLARED,
    "config": "config:app",
    "api": "api:app",
    "token": DECLARED,
}
"""The dispatcher's own commands and groups in the order of the help: name to module:attribute, or
`DECLARED` for a group whose verbs are declared.
"""


def _show_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


def show_version(as_json: AsJson = False) -> None:
    """Print the version; `holdfast config show` has those of its parts."""
    if as_json:
        print_json({"version": version("holdfast")})
    else:
        _show_version(is_set=True)


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
    known = {*COMMANDS, *registry.ALIASES, *points}
    app.command("version")(show_version)
    named = known.intersection(first)
    loaded = set() if first in (["--version"], ["version"]) else named or {*COMMANDS, *points}
    for name, place in COMMANDS.items():
        if name in loaded:
            _add(app, name, place)
    # A hidden word is completed, too: its commands, and not the groups.
    completed = registry.ALIASES if COMPLETION in os.environ else loaded
    for alias in registry.ALIASES.keys() & completed:
        name = registry.ALIASES[alias]
        _add(app, name, COMMANDS[name], alias)
    for name in sorted(loaded.intersection(points)):
        app.add_typer(_load(points[name], is_named=first == [name]), name=name)
    fill_help(app)
    return app


@cache
def command(*first: str) -> Any:
    """Return the command of `application`, whose numbers are digits and nothing else.

    Finding the groups takes most of the time of a short command.
    """
    return exact(_record_json(get_command(application(list(first)))), typer.BadParameter)


COMPLETION = "_HOLDFAST_COMPLETE"
"""The variable by which a shell asks for completions."""


def _add(app: typer.Typer, name: str, place: str, alias: str | None = None) -> None:
    """Add a command or a group; under an alias it is in no help."""
    word, hidden = alias or name, alias is not None
    if place == DECLARED:
        verbs.add(app, registry.group(name), word, hidden=hidden)
        return
    module, _, attribute = place.partition(":")
    command = getattr(import_module(f"holdfast.dispatcher.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=word, hidden=hidden)
    else:
        app.command(word, hidden=hidden)(command)


def fill_help(app: typer.Typer) -> None:
    """Set the docstring as help of every command of `app` and its groups that has none."""
    for command in app.registered_commands:
        if command.help is None and command.callback is not None and command.callback.__doc__:
            command.help = help_of(command.callback.__doc__)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            fill_help(group.typer_instance)


class _Output:
    """How errors are printed: as JSON for a command that was run with --json."""

    as_json = False

    @classmethod
    def record(cls, _context: Any, _parameter: Any, value: bool) -> bool:
        """Take --json as it was parsed."""
        cls.as_json = value
        return value

    @classmethod
    def guess(cls) -> bool:
        """Take --json from arguments that are not parsed, or not completely."""
        arguments = sys.argv[1:]
        end = arguments.index("--") if "--" in arguments else len(arguments)
        cls.as_json = "--json" in arguments[:end]
        return cls.as_json


def _record_json(command: Any) -> Any:
    """Have `--json` of this command, and of all commands in it, recorded; return the command."""
    for parameter in getattr(command, "params", ()):
        if "--json" in parameter.opts:
            parameter.callback = _Output.record
    for each in getattr(command, "commands", {}).values():
        _record_json(each)
    return command


_ClickError: type[Exception] = next(
    each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException"
)
"""What click raises for a wrong argument; typer has it, but does not export it."""


def main() -> None:
    """Run the command; the process exits with one of `ExitCode`."""
    _prepare_output()
    try:
        try:
            _run()
        finally:
            _write_out()
    except CommandError as error:
        _fail(str(error), error.code, error.exit_code)
    except UnicodeError:
        unreadable = "an argument or an answer is not UTF-8 text. Nothing was changed."
        _fail(unreadable, "invalid_text", ExitCode.USAGE)
    except OSError as error:
        kept = f"{error}. What was committed before is kept; see `holdfast status`."
        _fail(kept, "system_error", ExitCode.FAILED)


def _run() -> None:
    """Run the command; with --json, print click's own errors as JSON too."""
    may_be_json = _Output.guess()
    run = command(*sys.argv[1:2])
    _Output.as_json = False
    if not may_be_json:
        run()
        return
    try:
        code = run(standalone_mode=False)
    except _ClickError as error:
        _Output.guess()
        _fail(error.format_message(), "usage", error.exit_code)  # type: ignore[attr-defined]
    except typer.Abort:
        _fail("aborted.", "aborted", ExitCode.FAILED)
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


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


def _load(point: EntryPoint, *, is_named: bool) -> typer.Typer:
    """Load a group. If its extra is not installed, the help shows a placeholder."""
    try:
        loaded: typer.Typer = point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "holdfast":
            raise
        if is_named:
            raise CommandError(
                f"`holdfast {point.name}` needs the package {missing}, which is not installed:"
                " pip install '/path/to/holdfast[local]' installs every part.",
                ExitCode.USAGE,
                code="package_missing",
            ) from None
        return typer.Typer(help=f"(not installed: needs {missing})", callback=lambda: None)
    return loaded


def _fail(message: str, code: str, exit_code: int) -> NoReturn:
    """Print an error, with --json as one line of JSON, and exit."""
    address = _address(code)
    if _Output.as_json:
        content = {"error": message, "code": code, "exit_code": int(exit_code)}
        content |= {"docs": address} if address else {}
        sys.stderr.write(json.dumps(content) + "\n")
    else:
        _print_error(f"{message}\n{address}" if address else message)
    sys.exit(exit_code)


def _address(code: str) -> str | None:
    """Return where a site of the documents explains a code; None without a site."""
    site = os.environ.get("HOLDFAST_DOCS_URL", "").rstrip("/")
    return f"{site}/docs/reference/errors/#{code}" if site else None


def _print_error(message: str) -> None:
    lines = "\n".join(map(visible, message.split("\n")))
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]holdfast:[/] {escape(lines)}", markup=True
    )


if __name__ == "__main__":
    main()
