"""`holdfast audit`: who did what, when and why."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    AsJson,
    BeforeId,
    Dsn,
    Limit,
    Since,
    Until,
    Wide,
    when_of,
)
from holdfast.dispatcher.cli.output import Page, print_page, print_rows, shortened, visible
from holdfast.dispatcher.operators.audit.store import Audit, WantedActions
from holdfast.dispatcher.operators.common.session import Row
from holdfast.sink.contract.exits import CommandError, ExitCode

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
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    before: BeforeId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List actions, the newest first. Long texts are cut; --json shows them whole.

    Exit code 3: no action matches.
    """
    begin, end = when_of("--since", since), when_of("--until", until)
    if any("\0" in text for text in (actor, action, target) if text is not None):
        raise CommandError(
            "a filter contains a NUL character, which the audit trail never does. Nothing was"
            " changed.",
            ExitCode.USAGE,
            code="invalid_text",
        )
    with Audit.connect(dsn) as store:
        wanted = WantedActions(actor, action, target, store.moment(begin), store.moment(end))
        rows, older = store.actions(wanted, limit=limit, before=before)
    nothing = (
        "no action matches. Nothing was changed; actors, actions and targets are compared exactly."
    )
    print_page(Page("actions", rows, older), _print_list, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    print_rows([_table_row(row) for row in rows], _COLUMNS, "Actions", ("detail", "id"))


def _table_row(row: Row) -> Row:
    detail = json.dumps(row["detail"], ensure_ascii=False) if row["detail"] else None
    return {
        **row,
        **{name: visible(row[name]) for name in ("actor", "action", "target")},
        "reason": shortened(row["reason"], _CHARACTERS),
        "detail": None if detail is None else shortened(detail, _CHARACTERS),
    }
