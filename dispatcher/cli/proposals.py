"""`holdfast proposal`: what one person plans and a second one approves."""

import json
from typing import Annotated

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.cli.common.shown import moment_of, plain, reason_of, visible
from dispatcher.operators.common.session import Row
from dispatcher.operators.proposals.store import Proposals
from dispatcher.shared.text import last_word

app = typer.Typer(
    help="What needs a second person: list, show, approve, cancel.", no_args_is_help=True
)

ProposalId = Annotated[
    str, typer.Argument(metavar="ID", help="As `list` shows it: 8 hex digits suffice.")
]

_LIST = ("id", "verb", "target", "state", "reason", "actor", "created_at", "approved_by")
_FACTS = (
    *("verb", "target", "state", "reason", "actor", "person", "created_at"),
    *("approved_by", "approved_by_person", "approved_at", "applied_by", "applied_at"),
    *("cancelled_by", "cancelled_at", "sha256"),
)


@app.command("list")
def list_(
    open_: Annotated[
        bool, typer.Option("--open/--all", help="Only those that have not ended, or all of them.")
    ] = True,
    target: Annotated[
        str | None, typer.Option("--target", help="Only about this, such as 'quarantine 17'.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number.")] = 50,
    before: Annotated[
        str | None, typer.Option("--before", help="Only those made before then (RFC 3339).")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List proposals, the newest first."""
    moment = moment_of("--before", before)
    with Proposals.connect(dsn) as store:
        rows = store.proposals(limit=limit, before=moment, target=target, open_=open_)
    older = rows[-1]["created_at"] if len(rows) == limit else None
    if as_json:
        print_json({"proposals": rows, "next_before": older})
        return
    seen = [{**row, "id": row["id"].hex[:8], "reason": visible(row["reason"])} for row in rows]
    print_rows(seen, _LIST, "Proposals")
    if older is not None:
        typer.echo(f"older ones: --before {older.isoformat()}")


@app.command()
def show(proposal: ProposalId, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show a proposal with exactly what would be done. Read it before you approve it."""
    with Proposals.connect(dsn) as store:
        row = store.proposal(store.find_proposal(proposal))
    if as_json:
        print_json(row)
        return
    typer.echo(f"proposal {row['id'].hex[:8]}")
    for fact in _FACTS:
        typer.echo(f"  {fact.replace('_', ' '):<18} {plain(row[fact])}")
    typer.echo(json.dumps(row["detail"], ensure_ascii=True, indent=2))
    _next(row)


@app.command()
def approve(proposal: ProposalId, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Approve, as a second person, what another person proposed; `show` has all of it."""
    why = reason_of(reason)
    with Proposals.connect(dsn) as store:
        row = store.approve(store.find_proposal(proposal), why)
    _told(row, as_json=as_json)


@app.command()
def cancel(proposal: ProposalId, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """End a proposal: nothing of it is done any more."""
    why = reason_of(reason)
    with Proposals.connect(dsn) as store:
        row = store.cancel(store.find_proposal(proposal), why)
    _told(row, as_json=as_json)


def _told(row: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    typer.echo(f"proposal {row['id'].hex[:8]} is {row['state']}")
    _next(row)


def _next(row: Row) -> None:
    short = row["id"].hex[:8]
    match row["state"]:
        case "planned":
            typer.echo(f"a second person says\n  holdfast proposal approve {short} --reason TEXT")
        case "approved":
            verb, target = (
                row["verb"].replace(".", " "),
                last_word(row["target"].partition(" ")[2]),
            )
            typer.echo(f"to do it\n  holdfast {verb} --proposal {short} --reason TEXT {target}")
