"""`holdfast api`: the admin API and the console."""

import json
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import Dsn, UndeliveredMinutes
from holdfast.dispatcher.operators.common.person import ALONE_MAX
from holdfast.dispatcher.operators.overview.rules import UNDELIVERED_MINUTES
from holdfast.sink.contract.exits import CommandError, ExitCode

app = typer.Typer(no_args_is_help=True, help="The admin API and the operators' console.")


@app.command("serve")
def serve(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any free port.")
    ] = 8480,
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy", help="A proxy on this machine terminates TLS in front of it."
        ),
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="A host name under which browsers reach it; repeatable."),
    ] = None,
    connections: Annotated[
        int,
        typer.Option(
            "--connections", min=1, max=100, help="Maximum number of database connections."
        ),
    ] = 8,
    reissue_limit: Annotated[
        int,
        typer.Option(
            "--reissue-limit",
            envvar="HOLDFAST_REISSUE_LIMIT",
            min=0,
            max=1000,
            help="Business actions that one person may repeat in 24 hours without approval by a"
            " second person.",
        ),
    ] = ALONE_MAX,
    undelivered_minutes: UndeliveredMinutes = UNDELIVERED_MINUTES,
    dsn: Dsn = None,
) -> None:
    """Serve the API (/api/v1, described at /openapi.json) and the console (/) until stopped.

    Every user needs a token: `holdfast token add NAME --role viewer|operator|admin`.
    """
    from holdfast.dispatcher.api.serving import run  # noqa: PLC0415 - an optional extra
    from holdfast.dispatcher.api.settings import ApiSettings  # noqa: PLC0415 - as above

    if not dsn:
        raise CommandError(
            "no database given. Nothing was started; pass --dsn, set HOLDFAST_DSN, or start one"
            " with `holdfast local up`.",
            ExitCode.USAGE,
            code="missing_dsn",
        )
    names = tuple(name or ())
    run(
        ApiSettings(
            dsn, host, port, behind_proxy, names, connections, reissue_limit, undelivered_minutes
        )
    )


@app.command("openapi")
def openapi() -> None:
    """Print the OpenAPI description of the API. Needs no database."""
    from holdfast.dispatcher.api.app import application  # noqa: PLC0415 - an optional extra
    from holdfast.dispatcher.api.settings import ApiSettings  # noqa: PLC0415 - as above

    typer.echo(json.dumps(application(ApiSettings("")).openapi(), indent=2))
