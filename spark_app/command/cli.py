"""`holdfast job run`: the exposure job from the command line.

Spark and Arrow are imported only when the job runs, so that every other command starts fast.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds
from holdfast.sink.rows.quarantine_limit import REFUSED_ROWS
from holdfast.spark_app.checkpoint_manager.cli import app as checkpoints
from holdfast.spark_app.command.sources import Asked, Source
from holdfast.spark_app.command.values import (
    mebibytes,
    require_checkpoint,
    require_database,
    timeout_milliseconds,
)
from holdfast.spark_app.estimate.cli import estimate_job
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.input.formats import Format, KeyRule, ValueFormat
from holdfast.spark_app.inspection.cli import inspect
from holdfast.spark_app.operator.groups import STATE_PARTITIONS
from holdfast.spark_app.runtime.launch import Launch
from holdfast.spark_app.savepoint.cli import savepoint

app = typer.Typer(help="The Spark job that turns events into decisions.", no_args_is_help=True)


IDLE_MS = 60_000
"""Default of the idle timeout where there is a topic."""

Checkpoint = Annotated[
    str, typer.Option(help="The directory in which Spark keeps its position and state.")
]

# A checkpoint keeps these; a later start may add a path.
Paths = Annotated[
    list[str] | None,
    typer.Option(help="A directory of event files, read recursively. Can be repeated."),
]
Topics = Annotated[list[str] | None, typer.Option(help="A Kafka topic. Can be repeated.")]
TopicPattern = Annotated[
    str | None,
    typer.Option(help="A regular expression of Java: every topic that it matches, also later."),
]
KafkaKey = Annotated[
    KeyRule, typer.Option(help="What the key of a record must be; another record is refused.")
]
Servers = Annotated[
    str | None, typer.Option(help="Brokers of the cluster, as `host:9092,host:9092`.")
]
Starting = Annotated[
    str,
    typer.Option(help="Where a new topic begins: `earliest`, `latest` or a time (RFC 3339)."),
]
KafkaOptions = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=VALUE of Kafka's client (`kafka.*`) or of the connector; a secret only as"
        " `env:NAME` or `file:PATH`. Can be repeated."
    ),
]
MaxOffsets = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of records of each --topic in a batch.")
]
AvroSchema = Annotated[
    Path | None, typer.Option(help="The Avro schema (a file) of all values, which are bare Avro.")
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option(help="URL of a registry with Confluent's API; each value names its schema there."),
]
SchemaRegistryUser = Annotated[
    str | None, typer.Option(help="`env:NAME` or `file:PATH` with NAME:PASSWORD of its user.")
]
SchemaRegistryCa = Annotated[
    str | None, typer.Option(help="`env:NAME` or `file:PATH` with its authority's certificate.")
]
AcceptDataLoss = Annotated[
    bool,
    typer.Option(
        "--accept-data-loss", help="Go on after the records that this start finds missing."
    ),
]
Jars = Annotated[
    list[str] | None, typer.Option(help="A jar that Spark loads when it starts. Can be repeated.")
]
Packages = Annotated[
    list[str] | None,
    typer.Option(help="Maven coordinates that Spark downloads when it starts. Can be repeated."),
]
KeyGroups = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        help="Number of key groups of the state; fixed for a checkpoint.",
        show_default="as the checkpoint or savepoint has it; else four a partition",
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
    str | None,
    typer.Option(
        help="Time without events after which the clock closes windows, as `60s`; 0 disables.",
        show_default="60s with a topic, else 0",
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
FromSavepoint = Annotated[
    str | None,
    typer.Option(help="Begin the checkpoint, which must be new, with the state of a savepoint."),
]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Process what is available now, then exit.")
]
Dsn = Annotated[
    str | None, typer.Option(envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords).")
]
KeepBatches = Annotated[
    int, typer.Option(min=2, help="Number of batches that the checkpoint keeps to go back to.")
]
KeepFor = Annotated[
    str | None,
    typer.Option(
        help="Also keep every batch that can begin in this time: 2h.", show_default="no time"
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs tasks, as `spark://host:7077`.",
        show_default="all cores of this machine",
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option(help="A setting of Spark as NAME=VALUE. Can be repeated.")
]
MetricsHost = Annotated[str, typer.Option(help="Address of the Prometheus metrics.")]


@app.callback()
def group() -> None:
    """Keep `run` a subcommand where this app is the whole command."""


@app.command("run")
def run_job(
    checkpoint: Checkpoint,
    stream: Annotated[str, typer.Option(help="The sink stream that the job writes.")],
    policy: Annotated[Path, typer.Option(help="The policy file (TOML).")],
    source: Annotated[
        Source | None,
        typer.Option(
            help="Refuse the options of other sources.",
            show_default="what --path and --topic name",
        ),
    ] = None,
    path: Paths = None,
    topic: Topics = None,
    topic_pattern: TopicPattern = None,
    bootstrap_servers: Servers = None,
    starting: Starting = "earliest",
    max_offsets_per_trigger: MaxOffsets = None,
    kafka_option: KafkaOptions = None,
    kafka_key: KafkaKey = KeyRule.IGNORED,
    value_format: Annotated[
        ValueFormat, typer.Option(help="Format of the records' values.")
    ] = ValueFormat.JSON,
    avro_schema: AvroSchema = None,
    schema_registry: SchemaRegistry = None,
    schema_registry_user: SchemaRegistryUser = None,
    schema_registry_ca: SchemaRegistryCa = None,
    accept_data_loss: AcceptDataLoss = False,
    jars: Jars = None,
    packages: Packages = None,
    format_: Annotated[Format, typer.Option("--format", help="Format of the files.")] = Format.JSON,
    available_now: AvailableNow = False,
    max_files_per_trigger: MaxFiles = None,
    trigger_interval: TriggerInterval = "200ms",
    idle_timeout: IdleTimeout = None,
    dsn: Dsn = None,
    key_groups: KeyGroups = None,
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
    from_savepoint: FromSavepoint = None,
    keep_batches: KeepBatches = 100,
    keep_for: KeepFor = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Read events, compute exposure per merchant, and write block and release decisions.

    Prints a line for each batch on stderr; its fields are explained in docs/spark/exposure-job.md.
    """
    _start(SimpleNamespace(**locals()))


def _start(given: SimpleNamespace) -> None:
    """Read the options of `run_job`, by their names, and run the job."""
    database = require_database(given.dsn)
    asked = Asked(
        paths=given.path or [],
        topics=given.topic or [],
        pattern=given.topic_pattern,
        servers=given.bootstrap_servers,
        starting=given.starting,
        max_offsets=given.max_offsets_per_trigger,
        options=given.kafka_option or [],
        key=given.kafka_key,
        value_format=given.value_format,
        schema=given.avro_schema,
        registry=given.schema_registry,
        registry_user=given.schema_registry_user,
        registry_ca=given.schema_registry_ca,
        accept_data_loss=given.accept_data_loss,
        jars=given.jars or [],
        packages=given.packages or [],
    )
    asked.require(given.source, given.max_files_per_trigger)
    try:
        settings = Settings(
            watermark_delay_us=milliseconds(given.watermark_delay) * MILLISECOND_US,
            late_cutoff_us=milliseconds(given.late_cutoff) * MILLISECOND_US,
            future_tolerance_us=milliseconds(given.future_tolerance) * MILLISECOND_US,
        )
        interval_ms = milliseconds(given.trigger_interval)
        idle_timeout_ms = max(IDLE_MS, 2 * interval_ms) if asked.has_topics else 0
        if given.idle_timeout is not None:
            idle_timeout_ms = timeout_milliseconds(given.idle_timeout, interval_ms)
        state_memory_mb = mebibytes(given.state_memory)
    except ValueError as error:
        raise CommandError(f"{error}. Nothing was started.", ExitCode.USAGE) from error
    _run(
        asked=asked,
        dsn=database,
        trigger={"available_now": given.available_now, "interval_ms": interval_ms},
        start=(given.keep_batches, given.keep_for, given.master, given.conf or ()),
        running={
            "max_restarts": given.max_restarts,
            "state_memory_mb": state_memory_mb,
            "metrics_host": given.metrics_host,
            "metrics_port": given.metrics_port,
            "refused_rows": given.refused_rows,
            "doorbell": given.doorbell,
        },
        format=given.format_,
        checkpoint=given.checkpoint,
        stream=given.stream,
        policy=given.policy,
        settings=settings,
        key_groups=given.key_groups,
        partitions=given.partitions,
        max_files_per_trigger=given.max_files_per_trigger,
        savepoint=given.from_savepoint,
        idle_timeout_ms=idle_timeout_ms,
    )


def _run(
    *,
    asked: Asked,
    trigger: dict[str, Any],
    running: dict[str, Any],
    start: tuple[int, str | None, str | None, Iterable[str]],
    **job: Any,
) -> None:
    require_checkpoint(job["checkpoint"], "started")
    keep_batches, keep_for, master, conf = start
    keep_for_ms = _keep_for(keep_for, trigger["available_now"])
    try:
        from holdfast.spark_app.checkpoint.retention import Retention  # noqa: PLC0415 - takes a second
        from holdfast.spark_app.lifecycle.run import Running, Trigger, run_described  # noqa: PLC0415
        from holdfast.spark_app.runtime.session import launched_by_spark_submit  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`job run` needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[spark]'.",
            ExitCode.USAGE,
        ) from error
    kept = Retention.covering(keep_batches, keep_for_ms, trigger["interval_ms"])
    launch = Launch.read(master, conf, submitted=launched_by_spark_submit())
    described = asked.described(submitted=launched_by_spark_submit())
    launch = replace(launch, conf={**described.pop("jars").settings, **launch.conf})
    settings = Running(**running, retention=kept, launch=launch)
    run_described(trigger=Trigger(**trigger), running=settings, **described, **job)


def _keep_for(text: str | None, available_now: bool) -> int | None:
    """Return `--keep-for` in milliseconds; raises CommandError."""
    if text is None:
        return None
    if available_now:
        raise CommandError(
            "--keep-for counts the batches of a trigger interval, and --available-now has none."
            " Nothing was started; use --keep-batches.",
            ExitCode.USAGE,
        )
    try:
        return milliseconds(text)
    except ValueError as error:
        raise CommandError(f"--keep-for: {error}. Nothing was started.", ExitCode.USAGE) from error


app.command("inspect")(inspect)
app.command("savepoint")(savepoint)
app.command("estimate")(estimate_job)
app.add_typer(checkpoints, name="checkpoints")
