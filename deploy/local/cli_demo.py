"""`holdfast demo`: the whole path on one machine, with both halves killed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from holdfast.sink.contract.exits import ExitCode

app = typer.Typer(
    help="Run the whole path and kill Spark and the dispatcher on the way (about a minute)."
)

DIRECTORY = Path(".holdfast/demo")
KAFKA_DIRECTORY = Path(".holdfast/demo-kafka")
CHECKPOINTS_DIRECTORY = Path(".holdfast/demo-checkpoints")
WITHOUT_DIRECTORY = Path(".holdfast/demo-without")
SEED = 482
EVENTS = 30_000

Directory = Annotated[Path, typer.Option(help="The directory for files, logs and the report.")]
Seed = Annotated[int, typer.Option(help="The seed of the generated traffic.")]
Events = Annotated[int, typer.Option(min=2000, max=1_000_000, help="Approximate number of events.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the report as JSON; the rest goes to stderr.")
]


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    directory: Directory = DIRECTORY,
    seed: Seed = SEED,
    events: Events = EVENTS,
    as_json: AsJson = False,
) -> None:
    """Run two hours of traffic through Spark, outbox, dispatcher and payouts service.

    Spark is killed after the sink commits and before Spark records it; the dispatcher after a
    webhook is applied and before it is settled. Then the payouts service's tables are compared with
    a recomputation of the event files. Exit code 1: an action was lost or repeated.
    """
    if context.invoked_subcommand is None:
        _demo(directory, seed, events, as_json=as_json)


@app.command("kafka")
def kafka(
    directory: Directory = KAFKA_DIRECTORY,
    seed: Seed = SEED,
    events: Events = EVENTS,
    as_json: AsJson = False,
) -> None:
    """Run the demo with a Kafka broker as the source, and kill the broker too.

    A producer writes into a topic of three partitions, Spark reads it, two dispatchers deliver.
    Broker, Spark and one dispatcher are killed. Needs the extra `kafka` and `make kafka-jars`. Exit
    code 1: an action was lost or repeated.
    """
    from holdfast.deploy.local.kafka import require_client  # noqa: PLC0415 - as below
    from holdfast.deploy.local.kafka.jars import KINDS, staged  # noqa: PLC0415 - as below

    require_client()
    for kind in KINDS:
        staged(kind)
    _demo(directory, seed, events, as_json=as_json, kafka=True)


def _demo(directory: Path, seed: int, events: int, *, as_json: bool, kafka: bool = False) -> None:
    # Imported here, because every `holdfast` command loads this module.
    from holdfast.deploy.local.demo import live, report, run  # noqa: PLC0415 - loads psycopg, alembic, rich
    from holdfast.deploy.local.demo.layout import Layout  # noqa: PLC0415 - as above

    console = Console(stderr=as_json, highlight=False)
    layout = Layout(directory.absolute())
    with reported(console):
        result = run.run(layout, seed=seed, events=events, view=live.view(console), kafka=kafka)
    if as_json:
        typer.echo(result.as_json())
    else:
        report.show(result, console)
        console.print(str(layout.report), markup=False, soft_wrap=True)
    if not result.kept:
        raise typer.Exit(ExitCode.FAILED)


@app.command("checkpoints")
def checkpoints(
    directory: Directory = CHECKPOINTS_DIRECTORY,
    seed: Seed = SEED,
    events: Events = 6000,
    as_json: AsJson = False,
) -> None:
    """Kill, save, rescale, restore and damage a checkpoint, and compare after each step.

    After each step the outbox and the published windows are compared with an undisturbed run of the
    same files, recomputed by separate code. Takes about three minutes. Exit code 1: they differ.
    """
    # Imported here, because every `holdfast` command loads this module.
    from holdfast.deploy.local.demo.checkpoints import CheckpointLayout, run  # noqa: PLC0415 - as above

    console = Console(stderr=as_json, highlight=False)
    with reported(console):
        steps = run(
            CheckpointLayout(directory.absolute()), seed=seed, events=events, console=console
        )
    if as_json:
        typer.echo(json.dumps(steps, indent=2))
    if not all(step["equal"] for step in steps):
        raise typer.Exit(ExitCode.FAILED)


@app.command("without")
def without(
    directory: Directory = WITHOUT_DIRECTORY,
    seed: Seed = SEED,
    events: Events = EVENTS,
    as_json: AsJson = False,
) -> None:
    """Run the same traffic and kills with requests from Spark, without Holdfast.

    foreachBatch sends each decision from the executors, as is usual for REST services. Spark is
    killed after a batch was sent and before it is recorded, and within a request. The service's
    actions are compared as in the demo. Exit code 1: a kill missed its point.
    """
    # Imported here, because every `holdfast` command loads this module.
    from holdfast.deploy.local.demo import live, without  # noqa: PLC0415 - as above
    from holdfast.deploy.local.demo.layout import Layout  # noqa: PLC0415 - as above

    console = Console(stderr=as_json, highlight=False)
    layout = Layout(directory.absolute())
    with reported(console):
        report = without.run(layout, seed=seed, events=events, view=live.view(console))
    if as_json:
        typer.echo(report.as_json())
    else:
        without.show(report, console)
        console.print(str(layout.report), markup=False, soft_wrap=True)
    if not report.is_complete:
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def reported(console: Console) -> Iterator[None]:
    """Show the last lines of a process that failed; a signal ends the command in one line."""
    from holdfast.deploy.local.demo.processes import Failed, Interrupted  # noqa: PLC0415 - as above

    try:
        yield
    except Interrupted as interrupted:
        console.print("Interrupted. All processes have ended.")
        raise typer.Exit(interrupted.exit_code) from None
    except Failed as failed:
        for line in failed.lines:
            console.print(f"  | {line}", markup=False, soft_wrap=True)
        raise
