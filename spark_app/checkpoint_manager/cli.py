"""`holdfast job checkpoints`: list, show, input, verify, restore and prune.

Arrow and Spark are imported only after the options are checked, so that `--help` is fast. Spark
starts only for a checkpoint that is not on a local path.
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds
from holdfast.spark_app.command.launching import with_launch
from holdfast.spark_app.command.values import require_checkpoint, require_database
from holdfast.spark_app.runtime.launch import Launch

app = typer.Typer(
    help="The batches that a checkpoint keeps: sizes, integrity, going back.",
    no_args_is_help=True,
)

Checkpoint = Annotated[str, typer.Option(help="The checkpoint of `job run`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, do nothing.")]
Dsn = Annotated[
    str | None, typer.Option(envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords).")
]
ForTimes = Annotated[
    str | None,
    typer.Option(
        "--dsn", envvar="HOLDFAST_DSN", help="The database, for the times of the ledger; optional."
    ),
]


@app.command("list")
@with_launch
def list_batches(
    *, launch: Launch, checkpoint: Checkpoint, dsn: ForTimes = None, as_json: AsJson = False
) -> None:
    """List the kept batches: watermark, sizes, and the duration of each phase.

    Only reads; the job may be running.
    """
    require_checkpoint(checkpoint, "read")
    from holdfast.spark_app.checkpoint_manager import listing, render  # noqa: PLC0415 - takes a second
    from holdfast.spark_app.checkpoint_manager.folder import opened  # noqa: PLC0415

    with opened(checkpoint, launch) as folder:
        answer = listing.listed(folder, dsn)
    _print(answer, render.listed, as_json=as_json)


@app.command()
@with_launch
def show(
    *,
    launch: Launch,
    checkpoint: Checkpoint,
    batch: Annotated[int, typer.Option(min=0, help="The batch to show.")],
    dsn: ForTimes = None,
    as_json: AsJson = False,
) -> None:
    """Show one batch: offsets, watermark, settings, and every file that it needs.

    Only reads; the job may be running. Exit code 3: the batch is not kept.
    """
    require_checkpoint(checkpoint, "read")
    from holdfast.spark_app.checkpoint_manager import listing, render  # noqa: PLC0415 - takes a second
    from holdfast.spark_app.checkpoint_manager.folder import opened  # noqa: PLC0415

    with opened(checkpoint, launch) as folder:
        answer = listing.shown(folder, batch, dsn)
    _print(answer, render.shown, as_json=as_json)


@app.command("input")
@with_launch
def show_input(
    *,
    launch: Launch,
    checkpoint: Checkpoint,
    batch: Annotated[int, typer.Option(min=0, help="The batch to show.")],
    dsn: Annotated[
        str | None,
        typer.Option(
            envvar="HOLDFAST_DSN", help="The database, for a batch that is not kept; optional."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a batch read: the files of each --path, ticks, and offsets of each topic.

    Only reads; the job may be running. Exit code 3: neither the checkpoint nor the ledger has the
    batch.
    """
    require_checkpoint(checkpoint, "read")
    from holdfast.spark_app.checkpoint_manager import batch_input  # noqa: PLC0415 - takes a second
    from holdfast.spark_app.checkpoint_manager.folder import opened  # noqa: PLC0415

    with opened(checkpoint, launch) as folder:
        answer = batch_input.read_by(folder, batch, dsn)
    _print(answer, batch_input.lines, as_json=as_json)


@app.command()
@with_launch
def verify(
    *,
    launch: Launch,
    checkpoint: Checkpoint,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also let Spark read the newest state and decode every value."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read every file and name the damaged and missing ones.

    Only reads; of a running job, files that are being written may be reported. Exit code 0: all
    intact; 4: damaged, and the next start works; 1: the next start does not, and the way out is
    printed.
    """
    require_checkpoint(checkpoint, "read")
    from holdfast.spark_app.checkpoint_manager import render, verify  # noqa: PLC0415 - takes a second
    from holdfast.spark_app.checkpoint_manager.folder import opened  # noqa: PLC0415

    with opened(checkpoint, launch) as folder:
        answer, code = verify.verified(folder, deep=deep, launch=launch)
    _print(answer, render.verified, as_json=as_json)
    raise typer.Exit(code)


@app.command()
@with_launch
def restore(
    *,
    launch: Launch,
    checkpoint: Checkpoint,
    batch: Annotated[int, typer.Option(min=0, help="The committed batch to go back to.")],
    dsn: Dsn = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Go back to a kept batch, in place; the next start repeats the later batches.

    The job must be stopped. Each batch has the same input again, and the ledger compares it with
    what it has: nothing is written twice. What is removed is kept in the folder removed-N.
    Exit code 3: the batch is not kept, or is the newest one.
    """
    require_checkpoint(checkpoint, "changed")
    database = require_database(dsn)
    from holdfast.spark_app.checkpoint_manager import render  # noqa: PLC0415 - takes a second
    from holdfast.spark_app.checkpoint_manager.folder import opened  # noqa: PLC0415
    from holdfast.spark_app.checkpoint_manager.restore import restored  # noqa: PLC0415

    with opened(checkpoint, launch) as folder:
        answer = restored(folder, batch, database, dry_run=dry_run)
    _print(answer, render.restored, as_json=as_json)


@app.command()
@with_launch
def prune(
    *,
    launch: Launch,
    checkpoint: Checkpoint,
    keep_last: Annotated[int, typer.Option(min=1, help="Number of newest batches to keep.")],
    min_age: Annotated[
        str | None,
        typer.Option(help="Also keep younger batches: 2h.", show_default="no age"),
    ] = None,
    dsn: Dsn = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove what no kept batch needs, also what restores have removed.

    The job must be stopped, and the database is asked whether it is. A running job removes old
    batches by itself: see `job run --keep-batches`.
    """
    require_checkpoint(checkpoint, "removed")
    try:
        min_age_ms = 0 if min_age is None else milliseconds(min_age)
    except ValueError as error:
        raise CommandError(
            f"--min-age: {error}. Nothing was removed.", ExitCode.USAGE, code="invalid_duration"
        ) from error
    database = "" if dry_run else require_database(dsn)
    from holdfast.spark_app.checkpoint_manager import render  # noqa: PLC0415 - takes a second
    from holdfast.spark_app.checkpoint_manager.folder import opened  # noqa: PLC0415
    from holdfast.spark_app.checkpoint_manager.prune import pruned, pruned_stopped  # noqa: PLC0415

    with opened(checkpoint, launch) as folder:
        if dry_run:
            answer = pruned(folder, keep_last, min_age_ms, dry_run=True)
        else:
            answer = pruned_stopped(folder, keep_last, min_age_ms, database)
    _print(answer, render.pruned, as_json=as_json)


def _print(
    answer: dict[str, Any],
    render: Callable[[dict[str, Any]], Iterator[str]],
    *,
    as_json: bool,
) -> None:
    if as_json:
        json.dump(answer, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in render(answer))
