"""`holdfast token`: access tokens for the admin API and the console."""

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn, Reason, Wide, reason_of
from holdfast.dispatcher.cli.output import Page, print_json, print_page, print_rows
from holdfast.dispatcher.operators.common.session import Row, operator_connection
from holdfast.dispatcher.operators.tokens.store import Tokens
from holdfast.sink.contract.states import AccessRole

app = typer.Typer(no_args_is_help=True, help="Access tokens for the admin API: add, list, revoke.")

_COLUMNS = ("name", "owner", "role", "state", "expires_at", "last_used_at", "logins", "created_by")

Named = Annotated[
    str, typer.Argument(metavar="NAME", help="The token's name, as the audit trail shows it.")
]


@app.command("add")
def add(
    name: Named,
    role: Annotated[AccessRole, typer.Option("--role", help="The role of its holder.")],
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="The login name of the person who holds it. Default: NAME."),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", min=1, max=3650, help="Days until it expires.")
    ] = 90,
    reason: Reason = "added",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Create a token. Its secret is printed once; only its hash is stored.

    All tokens of one owner count as one person where a second person has to approve.
    """
    with operator_connection(dsn) as connection:
        tokens = Tokens(connection)
        row = tokens.add(name, role, days=days, reason=reason_of(reason), owner=owner)
    if as_json:
        print_json(row)
        return
    typer.echo(row["secret"])
    typer.echo(
        f"token {name} ({role}) of {row['owner']} expires in {days} days. Keep it safe: it is not"
        " shown again.",
        err=True,
    )


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False) -> None:
    """List tokens without their secrets, including revoked and expired ones.

    Exit code 3: there are none.
    """
    with operator_connection(dsn) as connection:
        rows = Tokens(connection).tokens()
    nothing = "no token exists; `holdfast token add NAME --role viewer` creates one."
    print_page(Page("tokens", rows), _print_list, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    print_rows(rows, _COLUMNS, "Tokens", ("created_by", "logins"))


@app.command("revoke")
def revoke(
    name: Named,
    reason: Reason = "revoked",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token and every login that was made with it, immediately."""
    with operator_connection(dsn) as connection:
        row = Tokens(connection).revoke(name, reason_of(reason))
    if as_json:
        print_json(row)
    else:
        typer.echo(f"token {name} is revoked, and so is every login made with it")
