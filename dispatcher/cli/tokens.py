"""`holdfast token`: who may use the admin API and the console."""

from typing import Annotated

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.cli.common.shown import reason_of
from dispatcher.operators.common.session import operator_connection
from dispatcher.operators.tokens.store import Tokens
from sink.contract.exits import ExitCode
from sink.contract.states import AccessRole

app = typer.Typer(no_args_is_help=True, help="Tokens of the admin API: add, list, revoke.")

COLUMNS = ("name", "owner", "role", "state", "expires_at", "last_used_at", "logins", "created_by")

Named = Annotated[str, typer.Argument(metavar="NAME", help="Of the token, in the audit trail.")]


@app.command("add")
def add(
    name: Named,
    role: Annotated[AccessRole, typer.Option("--role", help="What its holder may do.")],
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="Whose it is: a person's login name; NAME, if none is given."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long it lasts.")] = 90,
    reason: Reason = "added",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is printed this once; only its hash is kept.

    All tokens of one owner, and the login of that name, are one person where a second is needed.
    """
    with operator_connection(dsn) as connection:
        tokens = Tokens(connection)
        row = tokens.add(name, role, days=days, reason=reason_of(reason), owner=owner)
    if as_json:
        print_json(row)
        return
    typer.echo(row["secret"])
    typer.echo(
        f"the token {name} ({role}) of {row['owner']} lasts for {days} days; keep it safe: it is"
        " not shown again.",
        err=True,
    )


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List tokens, without their secrets; revoked and expired ones too."""
    with operator_connection(dsn) as connection:
        rows = Tokens(connection).tokens()
    if as_json:
        print_json({"tokens": rows})
    elif rows:
        print_rows(rows, COLUMNS, "Tokens")
    else:
        typer.echo("there is no token: `holdfast token add NAME --role viewer` makes one")
    if not rows:
        raise typer.Exit(ExitCode.NOTHING_MATCHED)


@app.command("revoke")
def revoke(
    name: Named,
    reason: Reason = "revoked",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """End a token and every login that was made with it, now."""
    with operator_connection(dsn) as connection:
        row = Tokens(connection).revoke(name, reason_of(reason))
    if as_json:
        print_json(row)
    else:
        typer.echo(f"the token {name} is revoked, and so is every login with it")
