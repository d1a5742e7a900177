"""`holdfast endpoint apply`: make endpoints match files, after showing the changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.dispatcher.cli.endpoints.settings import differences, setting_text, usage
from holdfast.dispatcher.cli.options import AsJson, Dsn, confirm, reason_of, require_terminal
from holdfast.dispatcher.cli.output import counted, print_json, visible
from holdfast.dispatcher.operators.config.environment import reference_fault
from holdfast.dispatcher.operators.endpoints.file import (
    Action,
    EndpointFileError,
    Settings,
    Step,
    parse,
    plan,
)
from holdfast.dispatcher.operators.endpoints.settings import DEFAULTS
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.outbound.operator_headers import masked
from holdfast.sink.contract.exits import CommandError, ExitCode

FILE_BYTES_MAX = 1024 * 1024

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help=r"TOML: \[endpoint.NAME] ...")]
Check = Annotated[
    bool, typer.Option("--check", help="Change nothing. Exit code 4 if there are differences.")
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
    """Make endpoints match TOML files: all of them in one transaction, or none.

    A table [endpoint.NAME] holds url, types, secret_refs and any setting that `endpoint show
    --json` prints, in the same units; an omitted setting gets its default. Endpoints that no file
    names are not changed. Applying the same files again changes nothing. Exit code 0: done; 1: not
    done; 2: usage; 4: --check found differences.
    """
    wanted = _read(files)
    why = "" if check else _reason(reason)
    with Endpoints.connect(dsn) as store:
        rows, others = store.by_name(tuple(wanted))
        steps = plan(wanted, rows)
        todo = [step for step in steps if step.action is not Action.NOTHING]
        if not as_json:
            _show(steps, others)
        if todo and not check:
            _refuse_blocked(todo, shown=not as_json)
            require_terminal(yes=yes)
            confirm(f"Apply this to {counted(len(todo), 'endpoint')}?", yes=yes)
            store.apply(steps, wanted, rows, why)
    if as_json:
        print_json(_content(steps, others, applied=bool(todo) and not check))
    elif todo and not check:
        typer.echo(f"{counted(len(todo), 'endpoint')} applied")
    if todo and check:
        raise typer.Exit(ExitCode.DEGRADED)


def _reason(reason: str | None) -> str:
    if reason is None:
        raise usage(
            "--reason is missing. It is required without --check.", code="missing_parameter"
        )
    return reason_of(reason)


def _read(files: Sequence[str]) -> dict[str, Settings]:
    """Parse the files; raises `CommandError` (usage) that names the file."""
    wanted: dict[str, Settings] = {}
    for file in files:
        name = visible(file)
        try:
            parsed = parse(_text(file))
        except EndpointFileError as error:
            raise usage(f"{name}: {visible(str(error))}.", code="invalid_file") from None
        for endpoint, settings in parsed.items():
            if endpoint in wanted:
                raise usage(
                    f"{name}: endpoint {endpoint} is in more than one of the files.",
                    code="invalid_file",
                )
            if fault := reference_fault(settings):
                raise usage(
                    f"{name}: [endpoint.{endpoint}]: {fault}.",
                    code="reference_not_allowed",
                )
        wanted |= parsed
    return wanted


def _text(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no file"
        raise usage(f"{visible(file)} cannot be read: {why}.", code="unreadable_file") from None
    if len(content) > FILE_BYTES_MAX:
        raise usage(
            f"{visible(file)} has more than {FILE_BYTES_MAX:,} bytes.",
            code="file_too_large",
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise usage(f"{visible(file)} is not UTF-8 text.", code="invalid_file") from None


def _refuse_blocked(todo: Sequence[Step], *, shown: bool) -> None:
    blocked = [step for step in todo if step.blocked]
    if not blocked:
        return
    says = "; ".join(f"{step.name}: {step.blocked}" for step in blocked)
    raise CommandError(
        f"{counted(len(blocked), 'endpoint')} cannot be changed yet. Nothing was changed."
        + (" What to do first is printed above." if shown else f" First {says}."),
        code="changes_blocked",
    )


def _show(steps: Sequence[Step], others: Sequence[str]) -> None:
    for step in steps:
        match step.action:
            case Action.ADD:
                typer.echo(f"endpoint {step.name}: add, for decisions from now on")
                lines = [
                    f"{column.replace('_', ' ')}: {setting_text(value)}"
                    for column, value in masked(step.after).items()
                    if value != DEFAULTS.get(column)
                ]
            case Action.CHANGE:
                typer.echo(f"endpoint {step.name}: change")
                lines = differences(masked(step.before), masked(step.after))
            case Action.NOTHING:
                typer.echo(f"endpoint {step.name}: unchanged")
                lines = []
        for line in [*lines, *([f"first: {step.blocked}"] if step.blocked else [])]:
            typer.echo(f"  {line}")
    for name in others:
        typer.echo(f"endpoint {name}: in no file, not changed")


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
