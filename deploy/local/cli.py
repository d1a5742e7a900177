"""`holdfast local`: an embedded Postgres in a directory, its environment variables, a broker."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict
from rich.console import Console

from holdfast.deploy.local.java import shell_environment
from holdfast.deploy.local.kafka.cli import kafka
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.deploy.local.stack.cli import STACK, stack
from holdfast.dispatcher.cli.options import AsJson
from holdfast.dispatcher.cli.output import print_json
from holdfast.sink.contract.dsn import redact
from holdfast.sink.contract.exits import CommandError, ExitCode

app = typer.Typer(
    help="Run Postgres from a wheel, or a Kafka broker, for development: no service, no network.",
    no_args_is_help=True,
)
app.command("kafka")(kafka)
app.add_typer(stack, name="stack")

DATABASE = "holdfast"

Directory = Annotated[
    Path, typer.Option("--directory", help="The directory of the server's files.")
]
DIRECTORY = Path(".holdfast/local")


@app.command()
def up(directory: Directory = DIRECTORY, as_json: AsJson = False) -> None:
    """Start the server, prepare the database and print its DSN. Safe to repeat.

    If HOLDFAST_DSN is set, nothing is started, because every command uses that database.
    """
    server = EmbeddedPostgres(directory)
    if given := _replacement(server):
        _tell("HOLDFAST_DSN is set: nothing was started, every command uses that database.")
        _print(redact(given), {"dsn": given, "started": False, "embedded": False}, as_json)
        return
    with Console(stderr=True).status("Starting Postgres; after a crash it first recovers ..."):
        started = server.start()
        dsn = server.make_database(DATABASE)
        _upgrade(dsn)
    _tell(
        f"Postgres {'started' if started else 'was running already'};"
        f' eval "$(holdfast local env{_option(directory)})" lets this shell use it.'
    )
    _print(dsn, {"dsn": dsn, "started": started, "embedded": True}, as_json)


@app.command()
def down(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory", help="The directory of a server or a stack. Default: both defaults."
        ),
    ] = None,
) -> None:
    """Stop the server and the stack, also what a killed stack left; data are kept.

    Exit code 3: nothing was running.
    """
    # Imported here, because every `holdfast` command loads this module.
    from holdfast.deploy.local.demo.layout import Layout  # noqa: PLC0415 - see above
    from holdfast.deploy.local.stack import leftovers  # noqa: PLC0415 - see above

    layout = Layout((directory or STACK).absolute())
    ended = leftovers.down(layout)
    if ended:
        _tell(f"Stack stopped: {ended} processes were ended.")
    # The directory of a stack is not that of a server, whose lock would be a file in it.
    server = directory if directory and not layout.lock.exists() else DIRECTORY
    if (directory in {None, server}) and EmbeddedPostgres(server).stop():
        _tell("Postgres stopped; its data are kept.")
    elif not ended:
        where = directory or f"{DIRECTORY} and {STACK}"
        raise CommandError(
            f"no embedded Postgres and no stack is running in {where}; nothing was stopped.",
            ExitCode.NOTHING_MATCHED,
            code="not_running",
        )


@app.command()
def status(directory: Directory = DIRECTORY, as_json: AsJson = False) -> None:
    """Show the server's DSN, version, process and paths. Exit code 3: it is not running."""
    server = EmbeddedPostgres(directory)
    facts = _facts(server)
    if as_json:
        print_json(facts)
    else:
        for name, value in facts.items():
            if value is not None:
                typer.echo(f"{name.replace('_', ' '):<15} {value}")
    if _replacement(server):
        _tell("HOLDFAST_DSN is set: every command uses that database, not this server.")
    if not facts["running"]:
        raise typer.Exit(ExitCode.NOTHING_MATCHED)


@app.command()
def env(directory: Directory = DIRECTORY, as_json: AsJson = False) -> None:
    """Print the environment variables to run Spark here: eval "$(holdfast local env)".

    They include HOLDFAST_DSN, unless it is set to another server, and JAVA_HOME, unless it is set
    to a Java that runs. Exit code 1: no server is running; the variables for Spark are printed
    anyway.
    """
    server = EmbeddedPostgres(directory)
    settings, note = shell_environment()
    other = _replacement(server)
    runs = server.running is not None
    if runs and not other:
        settings["HOLDFAST_DSN"] = server.dsn_of(DATABASE)
    if as_json:
        print_json(settings)
    else:
        for name, value in settings.items():
            typer.echo(f"export {name}={shlex.quote(value)}")
    if note:
        _tell(note)
    if not runs and not other:
        raise CommandError(
            f"no embedded Postgres is running in {directory}, so HOLDFAST_DSN is not set. Nothing"
            f" was changed; start it with `holdfast local up{_option(directory)}`.",
            code="dsn_unavailable",
        )


def _option(directory: Path) -> str:
    return "" if directory == DIRECTORY else f" --directory {shlex.quote(str(directory))}"


def _upgrade(dsn: str) -> None:
    # Imported here, because alembic would slow down `down` and `status`.
    from holdfast.migrations.upgrade import upgrade  # noqa: PLC0415 - see above

    upgrade(dsn)


def _replacement(server: EmbeddedPostgres) -> str | None:
    """Return HOLDFAST_DSN if it names a server other than this one.

    After `holdfast local env` it names this server, perhaps with the path of an earlier start; the
    random password identifies it.
    """
    dsn = os.environ.get("HOLDFAST_DSN")
    if not dsn:
        return None
    try:
        password = conninfo_to_dict(dsn).get("password")
    except psycopg.ProgrammingError:
        return dsn
    known = server.cluster
    return None if known and known.initialised and known.password == password else dsn


def _facts(server: EmbeddedPostgres) -> dict[str, Any]:
    known, running = server.cluster, server.running
    facts: dict[str, Any] = {
        "running": running is not None,
        "dsn": None,
        "version": None,
        "pid": None,
        "socket_folder": None,
        "data_directory": str(known.data) if known else None,
        "log": str(known.log) if known else None,
    }
    if running:
        facts["pid"] = running.process.pid
        facts["socket_folder"] = running.socket_folder and str(running.socket_folder)
        if running.ready:
            facts["dsn"] = server.dsn_of(DATABASE)
            with psycopg.connect(server.dsn, connect_timeout=10) as connection:
                facts["version"] = connection.info.parameter_status("server_version")
    return facts


def _print(dsn: str, value: dict[str, Any], as_json: bool) -> None:
    """Print `value` as JSON, or only `dsn`, for scripts."""
    if as_json:
        print_json(value)
    else:
        typer.echo(dsn)


def _tell(message: str) -> None:
    """Print a message on standard error; standard output is for scripts."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(message, markup=False)
