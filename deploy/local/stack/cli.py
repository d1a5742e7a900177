"""`holdfast local stack`: the whole system as processes of this machine."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from holdfast.deploy.local.cli_demo import SEED, reported
from holdfast.deploy.local.stack.settings import Input
from holdfast.dispatcher.cli.options import AsJson
from holdfast.dispatcher.cli.output import print_json

if TYPE_CHECKING:
    from holdfast.deploy.local.stack.run import Started

STACK = Path(".holdfast/stack")

stack = typer.Typer(
    help="Run the whole system on this machine: every process of deploy/compose, no container.",
    no_args_is_help=True,
)


_MISSING = {
    "kafka": "Events arrive as files; `make kafka-jars` stages a broker for a topic.",
    "prometheus": "No prometheus was found, so there are no dashboards: `make prometheus`.",
    "alertmanager": "Without an alertmanager on PATH (Debian: prometheus-alertmanager), none runs.",
}


@stack.callback()
def _group() -> None:
    """Keep `up` a command of its own."""


@stack.command()
def up(
    directory: Annotated[
        Path, typer.Option(help="The directory for files and logs; a new start clears it.")
    ] = STACK,
    seed: Annotated[int, typer.Option(help="The seed of the generated traffic.")] = SEED,
    events: Annotated[
        int, typer.Option(min=2000, max=1_000_000, help="Approximate number in two hours.")
    ] = 6000,
    source: Annotated[
        Input,
        typer.Option("--input", help="How events arrive; auto: a topic where its jars are staged."),
    ] = Input.AUTO,
    as_json: AsJson = False,
) -> None:
    """Start database, payouts service, two dispatchers, console and API, job, and monitoring.

    Events of the last two hours arrive first, then those of now, until it is stopped: in a topic if
    `make kafka-jars` has staged a broker, else as files.

    Prometheus runs where it is on PATH or fetched by `make prometheus`, and a page shows
    every panel of the dashboards; Alertmanager runs where it is on PATH. All of it runs until
    Ctrl-C, which ends every process. Exit code 1: a process ended by itself.
    """
    # Imported here, because every `holdfast` command loads this module.
    from holdfast.deploy.local.demo.layout import Layout  # noqa: PLC0415 - as above
    from holdfast.deploy.local.stack.run import run  # noqa: PLC0415 - loads psycopg, alembic
    from holdfast.deploy.local.stack.settings import StackSettings  # noqa: PLC0415 - as above

    console = Console(stderr=as_json, highlight=False)

    def started(parts: "Started") -> None:
        if as_json:
            print_json(asdict(parts))
            # The command continues, and whoever reads a pipe waits for this.
            sys.stdout.flush()
        else:
            _show(parts, console)
        console.print(f"\nLogs: {directory / 'logs'}. Ctrl-C ends everything.")

    console.print("Starting database, payouts service, dispatchers, console, job ...")
    with reported(console):
        run(
            Layout(directory.absolute()),
            StackSettings.read(),
            seed=seed,
            events=events,
            source=source,
            started=started,
            cleared=lambda count: console.print(
                f"An earlier stack was killed: {count} processes that it left were ended."
            ),
        )


def _show(stack: "Started", console: Console) -> None:
    table = Table("part", "address", "", box=None)
    for part in stack.parts:
        table.add_row(part.name, part.address, part.what)
    console.print(table)
    names = {part.name for part in stack.parts}
    for missing, reason in _MISSING.items():
        if missing not in names:
            console.print(reason)
    console.print(f"\ntoken for the console (role admin, one day): {stack.token}", soft_wrap=True)
    console.print(f"export HOLDFAST_DSN='{stack.dsn}'", soft_wrap=True, markup=False)
