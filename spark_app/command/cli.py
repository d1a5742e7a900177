"""`holdfast job run`: the exposure job from the command line.

Spark and Arrow are imported only when the job runs, so that every other command starts fast.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sink.contract.exits import CommandError, ExitCode
from sink.rows.quarantine_limit import REFUSED_ROWS
from spark_app.command.values import (
    mebibytes,
    milliseconds,
    require_checkpoint,
    timeout_milliseconds,
)
from spark_app.exposure.settings import MILLISECOND_US, Settings
from spark_app.input.formats import Format
from spark_app.inspection.cli import inspect
from spark_app.operator.groups import KEY_GROUPS, STATE_PARTITIONS

app = typer.Typer(help="The Spark job that turns events into decisions.", no_args_is_help=True)


class Source(StrEnum):
    """Where events come from."""

    FILES = "files"


Checkpoint = Annotated[
    str, typer.Option(help="The directory in which Spark keeps its position and state.")
]

# A checkpoint keeps these; a later start may add a path.
Paths = Annotated[
    list[str],
    typer.Option(help="A directory of event files, read recursively. Can be repeated."),
]
KeyGroups = Annotated[
    int,
    typer.Option(
        min=1, max=4096, help="Number of key groups of the state; fixed for a checkpoint."
    ),
]
Partitions = Annotated[
    int, typer.Option(min=1, help="Number of tasks that share the state; fixed for a checkpoint.")
]
WatermarkDelay = Annotated[
    str, typer.Option(help="Delay of the watermark behind the newest event.")
]
LateCutoff = Annotated[
    str, typer.Option(help="Time after its end in which a window accepts corrections.")
]
FutureTolerance = Annotated[
    str, typer.Option(help="How far ahead of its batch an event may be dated.")
]

# Another start may change these.
MaxFiles = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of files of each --path in a batch.")
]
TriggerInterval = Annotated[
    str, typer.Option(help="Minimum time between the starts of two batches.")
]
IdleTimeout = Annotated[
    str,
    typer.Option(
        help="Time without events after which the clock closes windows, as `60s`; 0 disables."
    ),
]
StateMemory = Annotated[
    str, typer.Option(help="Memory for the state in each process, outside the Java heap.")
]
MaxRestarts = Annotated[
    int,
    typer.Option(min=0, help="Consecutive restarts without a written batch; 0 disables restarts."),
]
MetricsPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of the Prometheus metrics; 0 disables.")
]
RefusedRows = Annotated[
    int,
    typer.Option(
        min=0, help="Maximum refused rows of a batch; above it the whole batch is refused."
    ),
]
Doorbell = Annotated[
    bool, typer.Option("--doorbell", help="Notify listening dispatchers after each batch.")
]
MetricsHost = Annotated[str, typer.Option(help="Address of the Prometheus metrics.")]


@app.callback()
def group() -> None:
    """Keep `run` a subcommand where this app is the whole command."""


@app.command("run")
def run_job(
    path: Paths,
    checkpoint: Checkpoint,
    stream: Annotated[str, typer.Option(help="The sink stream that the job writes.")],
    policy: Annotated[Path, typer.Option(help="The policy file (TOML).")],
    source: Annotated[Source, typer.Option(help="Where events come from.")] = Source.FILES,
    format_: Annotated[Format, typer.Option("--format", help="Format of the files.")] = Format.JSON,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what is available now, then exit.")
    ] = False,
    max_files_per_trigger: MaxFiles = None,
    trigger_interval: TriggerInterval = "1s",
    idle_timeout: IdleTimeout = "0",
    dsn: Annotated[
        str | None,
        typer.Option(envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords)."),
    ] = None,
    key_groups: KeyGroups = KEY_GROUPS,
    partitions: Partitions = STATE_PARTITIONS,
    watermark_delay: WatermarkDelay = "30s",
    late_cutoff: LateCutoff = "2m",
    future_tolerance: FutureTolerance = "5m",
    state_memory: StateMemory = "512m",
    max_restarts: MaxRestarts = 8,
    metrics_port: MetricsPort = 0,
    metrics_host: MetricsHost = "127.0.0.1",
    refused_rows: RefusedRows = REFUSED_ROWS,
    doorbell: Doorbell = False,
) -> None:
    """Read events, compute exposure per merchant, and write block and release decisions."""
    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
        )
    try:
        settings = Settings(
            watermark_delay_us=milliseconds(watermark_delay) * MILLISECOND_US,
            late_cutoff_us=milliseconds(late_cutoff) * MILLISECOND_US,
            future_tolerance_us=milliseconds(future_tolerance) * MILLISECOND_US,
        )
        interval_ms = milliseconds(trigger_interval)
        idle_timeout_ms = timeout_milliseconds(idle_timeout, interval_ms)
        state_memory_mb = mebibytes(state_memory)
    except ValueError as error:
        raise CommandError(f"{error}. Nothing was started.", ExitCode.USAGE) from error
    if source is Source.FILES:
        _run_files(
            dsn=dsn,
            trigger={"available_now": available_now, "interval_ms": interval_ms},
            running={
                "max_restarts": max_restarts,
                "state_memory_mb": state_memory_mb,
                "metrics_host": metrics_host,
                "metrics_port": metrics_port,
                "refused_rows": refused_rows,
                "doorbell": doorbell,
            },
            paths=path,
            format=format_,
            checkpoint=checkpoint,
            stream=stream,
            policy=policy,
            settings=settings,
            key_groups=key_groups,
            partitions=partitions,
            max_files_per_trigger=max_files_per_trigger,
            idle_timeout_ms=idle_timeout_ms,
        )


def _run_files(*, trigger: dict[str, Any], running: dict[str, Any], **job: Any) -> None:
    require_checkpoint(job["checkpoint"], "started")
    try:
        from spark_app.lifecycle.run import Running, Trigger, run_files  # noqa: PLC0415 - takes a second
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`job run` needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[spark]'.",
            ExitCode.USAGE,
        ) from error
    run_files(trigger=Trigger(**trigger), running=Running(**running), **job)


app.command("inspect")(inspect)
