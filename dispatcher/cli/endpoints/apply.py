"""`holdfast endpoint apply`: endpoints as files say, shown before anything is changed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dispatcher.cli.common.confirm import askable, confirm
from dispatcher.cli.common.shared import AsJson, Dsn, print_json
from dispatcher.cli.common.shown import counted, reason_of, visible
from dispatcher.cli.endpoints.checks import usage
from dispatcher.cli.endpoints.shown import changes, said
from dispatcher.operators.config.environment import reference_fault
from dispatcher.operators.endpoints.file import (
    Action,
    EndpointFileError,
    Settings,
    Step,
    parse,
    plan,
)
from dispatcher.operators.endpoints.store import DEFAULTS, Endpoints
from dispatcher.outbound.headers import masked
from sink.contract.exits import CommandError, ExitCode

FILE_BYTES_MAX = 1024 * 1024

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help=r"TOML: \[endpoint.NAME] ...")]
Check = Annotated[
    bool, typer.Option("--check", help="Change nothing. Exit code 4 where there are differences.")
]
Why = Annotated[
    str | None, typer.Option("--reason", help="Why; kept in the audit trail. Not with --check.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def apply(
    files: Files,
    check: Check = False,
    reason: Why = None,
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Make endpoints as files say: all of them in one transaction, or none.

    [endpoint.NAME] with url, types, secret_refs and whatever `endpoint show --json` calls a
    setting, in its units; what is left out has its default. An endpoint that no file names is left
    alone. Once more, it changes nothing. Exit code 0: done; 1: not; 2: usage; 4: --check differs.
    """
    wanted = _read(files)
    why = "" if check else _reason(reason)
    with Endpoints.connect(dsn) as store:
        there, others = store.there(tuple(wanted))
        steps = plan(wanted, there)
        todo = [step for step in steps if step.action is not Action.NOTHING]
        if not as_json:
            _show(steps, others)
        if todo and not check:
            _refuse_blocked(todo, shown=not as_json)
            askable(yes=yes)
            confirm(f"Apply this to {counted(len(todo), 'endpoint')}?", yes=yes)
            store.apply(steps, wanted, there, why)
    if as_json:
        print_json(_content(steps, others, applied=bool(todo) and not check))
    elif todo and not check:
        typer.echo(f"{counted(len(todo), 'endpoint')} applied")
    if todo and check:
        raise typer.Exit(ExitCode.DEGRADED)


def _reason(reason: str | None) -> str:
    if reason is None:
        raise usage("--reason says why and is missing; --check needs none.")
    return reason_of(reason)


def _read(files: Sequence[str]) -> dict[str, Settings]:
    """Read the files; raises `CommandError`, naming the file."""
    wanted: dict[str, Settings] = {}
    for file in files:
        name = visible(file)
        try:
            found = parse(_text(file), DEFAULTS)
        except EndpointFileError as error:
            raise usage(f"{name}: {visible(str(error))}.") from None
        for endpoint, settings in found.items():
            if endpoint in wanted:
                raise usage(f"{name}: endpoint {endpoint} is in another of the files as well.")
            if fault := reference_fault(settings):
                raise usage(f"{name}: [endpoint.{endpoint}]: {fault}.")
        wanted |= found
    return wanted


def _text(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no file"
        raise usage(f"{visible(file)} cannot be read: {why}.") from None
    if len(content) > FILE_BYTES_MAX:
        raise usage(f"{visible(file)} has more than {FILE_BYTES_MAX:,} bytes.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise usage(f"{visible(file)} is no UTF-8 text.") from None


def _refuse_blocked(todo: Sequence[Step], *, shown: bool) -> None:
    blocked = [step for step in todo if step.blocked]
    if not blocked:
        return
    says = "; ".join(f"{step.name}: {step.blocked}" for step in blocked)
    raise CommandError(
        f"{counted(len(blocked), 'endpoint')} cannot be changed yet. Nothing was changed."
        + (" What to do first stands above." if shown else f" First {says}.")
    )


def _show(steps: Sequence[Step], others: Sequence[str]) -> None:
    for step in steps:
        match step.action:
            case Action.ADD:
                typer.echo(f"endpoint {step.name}: add, for what is decided from now on")
                lines = [
                    f"{column.replace('_', ' ')}: {said(value)}"
                    for column, value in masked(step.after).items()
                    if value != DEFAULTS.get(column)
                ]
            case Action.CHANGE:
                typer.echo(f"endpoint {step.name}: change")
                lines = changes(masked(step.before), masked(step.after))
            case Action.NOTHING:
                typer.echo(f"endpoint {step.name}: nothing, it is like this already")
                lines = []
        for line in [*lines, *([f"first: {step.blocked}"] if step.blocked else [])]:
            typer.echo(f"  {line}")
    for name in others:
        typer.echo(f"endpoint {name}: in no file, left alone")


def _content(steps: Sequence[Step], others: Sequence[str], *, applied: bool) -> dict[str, Any]:
    return {
        "endpoints": [
            {
                "name": step.name,
                "action": step.action.value,
                "before": masked(step.before),
                "after": masked(step.after),
                "blocked": step.blocked,
            }
            for step in steps
        ],
        "left_alone": list(others),
        "applied": applied,
    }
