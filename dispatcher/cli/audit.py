"""`holdfast audit`: who did what, when and why."""

import json
from typing import Annotated

import typer

from dispatcher.cli.options import AsJson, BeforeId, Dsn, Limit, moment_of
from dispatcher.cli.output import print_json, print_rows, shortened, visible
from dispatcher.operators.audit.store import Audit, WantedActions
from dispatcher.operators.common.session import Row
from sink.contract.exits import CommandError, ExitCode

app = typer.Typer(help="The audit trail: who did what, when and why.", no_args_is_help=True)

_COLUMNS = ("id", "acted_at", "actor", "action", "target", "reason", "detail")
_CHARACTERS = 200


@app.command("list")
def list_(
    actor: Annotated[
        str | None, typer.Option("--actor", help="Only actions of this person or token.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action",
            help="Only this action: `endpoint.add`, or `endpoint` for all that begin with it.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Only actions on this target, as the list shows it."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only actions at or after this time (RFC 3339).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only actions before this time (RFC 3339).")
    ] = None,
    limit: Limit = 50,
    before: BeforeId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List actions, the newest first. Long texts are cut; --json shows them whole.

    Exit code 3: no action matches.
    """
    wanted = WantedActions(
        actor=actor,
        action=action,
        target=target,
        since=moment_of("--since", since),
        until=moment_of("--until", until),
    )
    if any("\0" in text for text in (actor, action, target) if text is not None):
        raise CommandError(
            "a filter contains a NUL character, which the audit trail never does. Nothing was"
            " changed.",
            ExitCode.USAGE,
        )
    with Audit.connect(dsn) as store:
        rows, older = store.actions(wanted, limit=limit, before=before)
    if not rows:
        raise CommandError(
            "no action matches. Nothing was changed; actors, actions and targets are compared"
            " exactly.",
            ExitCode.NOTHING_MATCHED,
        )
    if as_json:
        print_json({"actions": rows, "next_before": older})
        return
    print_rows([_table_row(row) for row in rows], _COLUMNS, "Actions")
    if older is not None:
        typer.echo(f"older rows: --before {older}")


def _table_row(row: Row) -> Row:
    detail = json.dumps(row["detail"], ensure_ascii=False) if row["detail"] else None
    return {
        **row,
        **{name: visible(row[name]) for name in ("actor", "action", "target")},
        "reason": shortened(row["reason"], _CHARACTERS),
        "detail": None if detail is None else shortened(detail, _CHARACTERS),
    }
