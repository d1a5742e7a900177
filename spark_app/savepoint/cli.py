"""`holdfast job savepoint`: the job's state as portable files.

Spark and Arrow are imported only after the options are checked, so that `--help` is fast.
"""

from typing import Annotated

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.command.values import require_checkpoint, require_database


def savepoint(
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
    command.run(checkpoint=checkpoint, to=to, batch=batch, dsn=database, as_json=as_json)
