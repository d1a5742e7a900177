"""`holdfast api`: the admin API and the console."""

import json
from typing import Annotated

import typer

from dispatcher.operators.common.person import ALONE_MAX
from sink.contract.exits import CommandError, ExitCode

app = typer.Typer(no_args_is_help=True, help="The admin API and the operators' console.")


@app.command("serve")
def serve(
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 8480,
    behind_proxy: Annotated[
        bool,
        typer.Option("--behind-proxy", help="A proxy with TLS is in front, on this machine."),
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="A host name by which browsers ask for it. Repeatable."),
    ] = None,
    connections: Annotated[
        int, typer.Option("--connections", min=1, max=100, help="To the database, at most.")
    ] = 8,
    reissue_limit: Annotated[
        int,
        typer.Option(
            "--reissue-limit",
            envvar="HOLDFAST_REISSUE_LIMIT",
            min=0,
            max=1000,
            help="More repeated actions of one person in 24 hours need a second person's approval.",
        ),
    ] = ALONE_MAX,
    dsn: Annotated[
        str | None,
        typer.Option("--dsn", envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords)."),
    ] = None,
) -> None:
    """Serve the API (/api/v1, described at /openapi.json) and the console (/) until stopped.

    Everybody needs a token: `holdfast token add NAME --role viewer|operator|admin`.
    """
    from dispatcher.api.serving import run  # noqa: PLC0415 - an extra that others go without
    from dispatcher.api.settings import ApiSettings  # noqa: PLC0415 - as above

    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
        )
    run(ApiSettings(dsn, host, port, behind_proxy, tuple(name or ()), connections, reissue_limit))


@app.command("openapi")
def openapi() -> None:
    """Print the OpenAPI description of the API; needs no database."""
    from dispatcher.api.app import application  # noqa: PLC0415 - an extra that others go without
    from dispatcher.api.settings import ApiSettings  # noqa: PLC0415 - as above

    typer.echo(json.dumps(application(ApiSettings("")).openapi(), indent=2))
