"""`holdfast job run`: the exposure job from the command line.

Spark and Arrow are imported only when the job runs, so that every other command starts fast.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds
from holdfast.spark_app.checkpoint_manager.cli import app as checkpoints
from holdfast.spark_app.command import sources
from holdfast.spark_app.command.new import new
from holdfast.spark_app.command.options import JobOptions, command
from holdfast.spark_app.command.values import (
    mebibytes,
    require_checkpoint,
    require_database,
    timeout_milliseconds,
)
from holdfast.spark_app.estimate import estimate_job
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.inspection.cli import inspect
from holdfast.spark_app.runtime.launch import Launch, launched_by_spark_submit
from holdfast.spark_app.savepoint.cli import savepoint, shelf

if TYPE_CHECKING:
    from holdfast.spark_app.savepoint.schedule import Schedule

app = typer.Typer(help="The Spark job that turns events into decisions.", no_args_is_help=True)


SECOND_MS = 1000
"""Shortest interval of savepoints, whose names are times in seconds."""

IDLE_MS = 60_000
"""Default of the idle timeout where there is a topic."""


@app.callback()
def group() -> None:
    """Keep `run` a subcommand where this app is the whole command."""


def run_job(options: JobOptions) -> None:
    """Read events, compute exposure per merchant, and write block and release decisions.

    Prints a line for each batch on stderr; its fields are explained in docs/spark/exposure-job.md.
    """
    dsn = require_database(options.dsn)
    sources.require(options)
    try:
        settings = Settings(
            watermark_delay_us=milliseconds(options.watermark_delay) * MILLISECOND_US,
            late_cutoff_us=milliseconds(options.late_cutoff) * MILLISECOND_US,
            future_tolerance_us=milliseconds(options.future_tolerance) * MILLISECOND_US,
        )
        interval_ms = milliseconds(options.trigger_interval)
        idle_timeout_ms = max(IDLE_MS, 2 * interval_ms) if options.has_topics else 0
        if options.idle_timeout is not None:
            idle_timeout_ms = timeout_milliseconds(options.idle_timeout, interval_ms)
        state_memory_mb = mebibytes(options.state_memory)
    except ValueError as error:
        raise CommandError(
            f"{error}. Nothing was started.", ExitCode.USAGE, code="invalid_value"
        ) from error
    require_checkpoint(options.checkpoint, "started")
    keep_for_ms = _keep_for(options.keep_for, options.available_now)
    try:
        from holdfast.spark_app.checkpoint.retention import Retention  # noqa: PLC0415 - takes a second
        from holdfast.spark_app.lifecycle.run import Running, Trigger, run_described  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`job run` needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[spark]'.",
            ExitCode.USAGE,
            code="package_missing",
        ) from error
    submitted, savepoints = launched_by_spark_submit(), _savepoints(options)
    retention = Retention.covering(options.keep_batches, keep_for_ms, interval_ms)
    launch = Launch.read(options.master, options.conf, submitted=submitted)
    described = sources.described(options, submitted=submitted)
    running = Running(
        max_restarts=options.max_restarts,
        state_memory_mb=state_memory_mb,
        metrics_host=options.metrics_host,
        metrics_port=options.metrics_port,
        refused_rows=options.refused_rows,
        doorbell=options.doorbell,
        retention=retention,
        savepoints=savepoints,
        launch=replace(launch, conf={**described.pop("jars").settings, **launch.conf}),
    )
    run_described(
        dsn=dsn,
        trigger=Trigger(available_now=options.available_now, interval_ms=interval_ms),
        running=running,
        format=options.format,
        checkpoint=options.checkpoint,
        stream=options.stream,
        policy=options.policy,
        settings=settings,
        key_groups=options.key_groups,
        partitions=options.partitions,
        max_files_per_trigger=options.max_files_per_trigger,
        savepoint=options.from_savepoint,
        idle_timeout_ms=idle_timeout_ms,
        **described,
    )


def _keep_for(text: str | None, available_now: bool) -> int | None:
    """Return `--keep-for` in milliseconds; raises CommandError."""
    if text is None:
        return None
    if available_now:
        raise CommandError(
            "--keep-for counts the batches of a trigger interval, and --available-now has none."
            " Nothing was started; use --keep-batches.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    try:
        return milliseconds(text)
    except ValueError as error:
        raise CommandError(
            f"--keep-for: {error}. Nothing was started.", ExitCode.USAGE, code="invalid_duration"
        ) from error


def _savepoints(options: JobOptions) -> "Schedule | None":
    """Return when savepoints are written, None for never; raises CommandError."""
    every, place = options.savepoint_every, options.savepoint_to
    if (every is None) != (place is None):
        missing = "--savepoint-to" if place is None else "--savepoint-every"
        raise CommandError(
            f"{missing} is missing: savepoints of a running job need both a time and a place."
            " Nothing was started.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    if every is None or place is None:
        return None
    if options.available_now:
        raise CommandError(
            "--savepoint-every is for a job that runs on, and --available-now ends it. Nothing was"
            " started; use `holdfast job savepoint` after it.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    try:
        every_ms = milliseconds(every)
    except ValueError as error:
        raise CommandError(
            f"--savepoint-every: {error}. Nothing was started.",
            ExitCode.USAGE,
            code="invalid_duration",
        ) from error
    if every_ms < SECOND_MS:
        raise CommandError(
            f"--savepoint-every {every} is less than a second. Nothing was started.",
            ExitCode.USAGE,
            code="invalid_duration",
        )
    from holdfast.spark_app.savepoint.schedule import Schedule  # noqa: PLC0415 - imports Spark

    return Schedule(every_ms, place, options.savepoint_keep)


app.command("run")(command(run_job))
app.command("new")(new)
app.command("inspect")(inspect)
app.command("savepoint")(savepoint)
app.add_typer(shelf, name="savepoints")
app.command("estimate")(estimate_job)
app.add_typer(checkpoints, name="checkpoints")
