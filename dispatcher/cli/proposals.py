"""`holdfast proposal`: changes that one person proposes and a second person approves."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    AsJson,
    BeforeTime,
    Dsn,
    Limit,
    Reason,
    Wide,
    reason_of,
    when_of,
)
from holdfast.dispatcher.cli.output import (
    Page,
    print_facts,
    print_json,
    print_page,
    print_rows,
    visible,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.proposals.store import Proposals
from holdfast.dispatcher.shared.text import last_word

app = typer.Typer(
    help="Proposals, which a second person approves: list, show, approve, cancel.",
    no_args_is_help=True,
)

ProposalId = Annotated[
    str, typer.Argument(metavar="ID", help="As `list` shows it; the first 8 hex digits are enough.")
]

_LIST = ("id", "verb", "target", "state", "reason", "actor", "created_at", "approved_by")
_FACTS = (
    *("verb", "target", "state", "reason", "actor", "person", "created_at"),
    *("approved_by", "approved_by_person", "approved_at", "applied_by", "applied_at"),
    *("cancelled_by", "cancelled_at", "sha256"),
)


@app.command("list")
def list_(
    open_: Annotated[bool, typer.Option("--open/--all", help="Only open ones, or all.")] = True,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Only proposals for this target, such as 'quarantine 17'."),
    ] = None,
    limit: Limit = 50,
    before: BeforeTime = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List proposals, the newest first. Exit code 3: none match."""
    below = when_of("--before", before)
    with Proposals.connect(dsn) as store:
        moment = store.moment(below)
        rows = store.proposals(limit=limit, before=moment, target=target, open_=open_)
    older = rows[-1]["created_at"] if len(rows) == limit else None
    nothing = "no proposal matches. Nothing was changed; --all includes those that are closed."
    print_page(Page("proposals", rows, older), _print_list, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    seen = [{**row, "id": row["id"].hex[:8], "reason": visible(row["reason"])} for row in rows]
    print_rows(seen, _LIST, "Proposals", ("approved_by", "actor", "created_at"))


@app.command()
def show(proposal: ProposalId, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show a proposal with exactly what it would do. Read it before you approve it."""
    with Proposals.connect(dsn) as store:
        row = store.proposal(store.find_proposal(proposal))
    if as_json:
        print_json(row)
        return
    typer.echo(f"proposal {row['id'].hex[:8]}")
    print_facts({name: row[name] for name in _FACTS}, 18)
    typer.echo(json.dumps(row["detail"], ensure_ascii=True, indent=2))
    _print_next(row)


@app.command()
def approve(proposal: ProposalId, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Approve, as a second person, what another person proposed. See `show` for its details."""
    why = reason_of(reason)
    with Proposals.connect(dsn) as store:
        row = store.approve(store.find_proposal(proposal), why)
    _print_state(row, as_json=as_json)


@app.command()
def cancel(proposal: ProposalId, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Cancel a proposal, approved or not."""
    why = reason_of(reason)
    with Proposals.connect(dsn) as store:
        row = store.cancel(store.find_proposal(proposal), why)
    _print_state(row, as_json=as_json)


def _print_state(row: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    typer.echo(f"proposal {row['id'].hex[:8]} is {row['state']}")
    _print_next(row)


def _print_next(row: Row) -> None:
    short = row["id"].hex[:8]
    match row["state"]:
        case "planned":
            typer.echo(
                f"a second person approves it with\n  holdfast proposal approve {short}"
                " --reason TEXT"
            )
        case "approved":
            verb, target = (
                row["verb"].replace(".", " "),
                last_word(row["target"].partition(" ")[2]),
            )
            typer.echo(f"to apply it\n  holdfast {verb} --proposal {short} --reason TEXT {target}")
