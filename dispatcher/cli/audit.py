"""`holdfast audit`: who did what, when and why."""

import json
from typing import Annotated

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json, print_rows
from dispatcher.cli.common.shown import moment_of, shortened, visible
from dispatcher.operators.audit.store import Audit, WantedActions
from dispatcher.operators.common.session import Row
from sink.contract.exits import CommandError, ExitCode

app = typer.Typer(help="The audit trail: who did what, when and why.", no_args_is_help=True)

_COLUMNS = ("id", "acted_at", "actor", "action", "target", "reason", "detail")
_CHARACTERS = 200


@app.command("list")
def list_(
    actor: Annotated[str | None, typer.Option("--actor", help="Only what they did.")] = None,
    action: Annotated[
        str | None,
        typer.Option("--action", help="Only this: `endpoint.add`, or `endpoint` for all of those."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Only what was done to this, as the list names it."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only done then or later (RFC 3339).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only done before then (RFC 3339).")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="As many at most.")] = 50,
    before: Annotated[
        int | None,
        typer.Option("--before", min=1, max=2**63 - 1, help="Only numbers below this one."),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List actions, the newest first; in the --json they are whole. Exit 3: none matches."""
    wanted = WantedActions(
        actor=actor,
        action=action,
        target=target,
        since=moment_of("--since", since),
        until=moment_of("--until", until),
    )
    if any("\0" in text for text in (actor, action, target) if text is not None):
        raise CommandError(
            "a filter has a NUL, which nothing in the trail has. Nothing was changed.",
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
    print_rows([_seen(row) for row in rows], _COLUMNS, "Actions")
    if older is not None:
        typer.echo(f"older ones: --before {older}")


def _seen(row: Row) -> Row:
    detail = json.dumps(row["detail"], ensure_ascii=False) if row["detail"] else None
    return {
        **row,
        **{name: visible(row[name]) for name in ("actor", "action", "target")},
        "reason": shortened(row["reason"], _CHARACTERS),
        "detail": None if detail is None else shortened(detail, _CHARACTERS),
    }
