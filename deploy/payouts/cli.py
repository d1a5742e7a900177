"""`holdfast payouts`: run the payouts service, and list held merchants."""

import json
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.trace_export import exported_spans

app = typer.Typer(
    help="The payouts service, an example receiver: applies signed holds to its own tables.",
    no_args_is_help=True,
)

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", envvar="PAYOUTS_DSN", help="The service's own database."),
]
PAGE_ROWS = 1000


@app.command()
def serve(
    dsn: Dsn = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8099,
    secret_ref: Annotated[
        list[str] | None,
        typer.Option(help="env:VAR or file:PATH of a signing secret; pass two during a rotation."),
    ] = None,
    port_file: Annotated[
        Path | None, typer.Option(help="Write the port to this file when ready.")
    ] = None,
    key_days: Annotated[
        int,
        typer.Option(help="Days to keep keys; answers declare it. 0: forever."),
    ] = 45,
) -> None:
    """Receive payout holds until stopped. The first start creates the tables."""
    # Imported here, because every `holdfast` command loads this module.
    from holdfast.deploy.payouts import database, server  # noqa: PLC0415 - only this command serves
    from holdfast.deploy.payouts.app import build  # noqa: PLC0415 - only this command serves
    from holdfast.receiver import Inbox, Secret, SecretError  # noqa: PLC0415 - as above

    if not secret_ref:
        raise CommandError(
            "no signing secret: pass --secret-ref env:VAR or --secret-ref file:PATH.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    try:
        secrets = [Secret.load(reference) for reference in secret_ref]
    except SecretError as error:
        raise CommandError(
            f"{error}. Nothing was started.", ExitCode.USAGE, code="invalid_secret"
        ) from None
    target = _required(dsn)
    try:
        inbox = Inbox(window=timedelta(days=key_days) if key_days else None)
    except (ValueError, OverflowError) as error:
        raise CommandError(
            f"--key-days: {error}. Nothing was started.", ExitCode.USAGE, code="invalid_duration"
        ) from None
    with server.bind(host, port) as listener:
        database.create_tables(target, inbox)
        failures: list[CommandError] = []

        def ready() -> None:
            for failure in failures:
                raise failure
            if port_file is not None:
                server.write_port(port_file, listener)
            with suppress(OSError):  # a full disk under stdout holds up no payout
                typer.echo(f"payouts service ready on {server.url_of(listener)} (POST /webhooks)")
                sys.stdout.flush()

        with exported_spans("holdfast-payouts"):
            server.run(build(target, inbox, secrets, failures.append), listener, ready)


@app.command()
def held(
    dsn: Dsn = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List held merchants, and why they are held."""
    rows = _all_held(_required(dsn))
    if as_json:
        json.dump(rows, sys.stdout, indent=2, default=rfc3339)
        sys.stdout.write("\n")
        return
    if not rows:
        typer.echo("No merchant is held.")
    for row in rows:
        typer.echo(_line(row))


def _all_held(dsn: str) -> list[dict[str, Any]]:
    from holdfast.deploy.payouts import database  # noqa: PLC0415 - keeps every other command light

    rows: list[dict[str, Any]] = []
    with database.connect(dsn) as connection:
        try:
            while True:
                after = rows[-1]["merchant_id"] if rows else ""
                page = connection.execute(
                    database.statement("list_held"), {"after": after, "limit": PAGE_ROWS}
                ).fetchall()
                rows += page
                if len(page) < PAGE_ROWS:
                    return rows
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise CommandError(
                "this database has no payouts tables. Run `holdfast payouts serve` on it once.",
                code="schema_missing",
            ) from None
        except psycopg.Error as error:
            raise CommandError(
                f"held merchants cannot be read: {database.text_of(error)}. Nothing was changed;"
                " use an account that can read schema payouts, and check --dsn or PAYOUTS_DSN.",
                code="database_error",
            ) from None


def _line(row: dict[str, Any]) -> str:
    from holdfast.sink.contract.money import money  # noqa: PLC0415 - keeps other commands light

    why = "by hand"
    if row["window_end"] is not None:
        exposure = money(row["exposure_minor"], row["currency"])
        limit = money(row["limit_minor"], row["currency"])
        why = f"exposure {exposure} above {limit} in the window ending {rfc3339(row['window_end'])}"
    return (
        f"{printable(row['merchant_id'])}  held since {rfc3339(row['since'])}  {why}"
        f"  sequence {row['sequence']}  {row['key']}"
    )


def printable(text: str) -> str:
    """Escape characters in text from the wire that could control a terminal."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def _required(dsn: str | None) -> str:
    if not dsn:
        raise CommandError(
            "no database: pass --dsn or set PAYOUTS_DSN.", ExitCode.USAGE, code="missing_dsn"
        )
    return dsn
