"""`holdfast job inspect`: the job's state of a merchant.

Spark and Arrow are imported only after the options are checked, so that `--help` is fast.
"""

from typing import Annotated

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.command.launching import with_launch
from holdfast.spark_app.command.values import require_checkpoint
from holdfast.spark_app.runtime.launch import Launch


@with_launch
def inspect(
    *,
    launch: Launch,
    checkpoint: Annotated[str, typer.Option(help="The checkpoint of `job run`.")],
    merchant: Annotated[str, typer.Option(help="The merchant's id.")],
    batch: Annotated[
        int | None,
        typer.Option(
            help="Show the state after this batch.", show_default="the newest committed one"
        ),
    ] = None,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="N M", help="Show what changed from after batch N to after batch M."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show the job's state of a merchant: windows, event ids, hold, and what is due when.

    Only reads; the job may be running. Exit code 3: nothing is known of the merchant, or the batch
    is not kept.
    """
    require_checkpoint(checkpoint, "read")
    if batch is not None and diff is not None:
        raise CommandError(
            "--batch shows one batch and --diff compares two. Nothing was read; use one of them.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    if diff is not None and diff[0] > diff[1]:
        raise CommandError(
            f"--diff takes the earlier batch first. Nothing was read; try --diff {diff[1]}"
            f" {diff[0]}.",
            ExitCode.USAGE,
            code="invalid_batch_range",
        )
    try:
        from holdfast.spark_app.inspection import answer  # noqa: PLC0415 - takes a second
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`job inspect` needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[spark]'.",
            ExitCode.USAGE,
            code="package_missing",
        ) from error
    answer.run(answer.Question(checkpoint, merchant, batch, diff), launch, as_json=as_json)
