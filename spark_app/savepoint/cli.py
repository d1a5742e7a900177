"""`holdfast job savepoint` and `savepoints`: the job's state as portable files.

Spark and Arrow are imported only after the options are checked, so that `--help` is fast.
"""

from typing import Annotated

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.command.launching import with_launch
from holdfast.spark_app.command.values import require_checkpoint, require_database
from holdfast.spark_app.runtime.launch import Launch


@with_launch
def savepoint(
    *,
    launch: Launch,
    checkpoint: Annotated[str, typer.Option(help="The checkpoint of `job run`.")],
    to: Annotated[str, typer.Option(help="The directory to write; it must not exist.")],
    batch: Annotated[
        int | None,
        typer.Option(
            min=0, help="Save the state after this batch.", show_default="the newest committed one"
        ),
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option(envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Save the job's state, from which `job run --from-savepoint` begins a new checkpoint.

    Only reads the checkpoint; the job may be running. Exit code 3: the batch is not kept.
    """
    require_checkpoint(checkpoint, "read")
    database = require_database(dsn)
    try:
        from holdfast.spark_app.savepoint import command  # noqa: PLC0415 - takes a second
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`job savepoint` needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[spark]'.",
            ExitCode.USAGE,
            code="package_missing",
        ) from error
    command.run(
        checkpoint=checkpoint, to=to, batch=batch, dsn=database, launch=launch, as_json=as_json
    )


shelf = typer.Typer(
    help="The savepoints that `job run --savepoint-every` has written.", no_args_is_help=True
)

Place = Annotated[str, typer.Option("--in", help="The directory of `job run --savepoint-to`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@shelf.command("list")
@with_launch
def list_savepoints(*, launch: Launch, place: Place, as_json: AsJson = False) -> None:
    """List them, the newest first: batch, time, size.

    Only reads. Exit code 3: there is none.
    """
    from holdfast.spark_app.savepoint import command  # noqa: PLC0415 - takes a second

    command.print_shelf(place, launch, as_json=as_json)


@shelf.command("verify")
@with_launch
def verify_savepoints(*, launch: Launch, place: Place, as_json: AsJson = False) -> None:
    """Read every file of each, and name what is damaged or missing.

    Only reads. Exit code 0: all intact; 4: one is damaged, and a newer or older one is intact; 1:
    none is; 3: there is none.
    """
    from holdfast.spark_app.savepoint import command  # noqa: PLC0415 - takes a second

    raise typer.Exit(command.print_shelf(place, launch, as_json=as_json, verify=True))


@shelf.command("prune")
@with_launch
def prune_savepoints(
    *,
    launch: Launch,
    place: Place,
    stream: Annotated[str, typer.Option(help="The stream whose savepoints are removed.")],
    keep: Annotated[int, typer.Option(min=1, help="Number of newest ones to keep.")],
    as_json: AsJson = False,
) -> None:
    """Remove all but the newest ones of a stream, and never the newest intact one."""
    from holdfast.spark_app.savepoint import command  # noqa: PLC0415 - takes a second

    command.prune_shelf(place, launch, stream, keep, as_json=as_json)
