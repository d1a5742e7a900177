"""The options of `holdfast job run`: declared once, read from the command line or a file."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from inspect import Parameter, Signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from holdfast.sink.contract.checkpoint import (
    MANAGER_CLASS,
    MANAGER_SETTING,
    needs_manager,
    scheme_of,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.rows.quarantine_limit import REFUSED_ROWS
from holdfast.spark_app.command.sources import Source
from holdfast.spark_app.input.formats import Format, KeyRule, ValueFormat
from holdfast.spark_app.operator.groups import STATE_PARTITIONS
from holdfast.spark_app.runtime.launch import STORE_LIMITS


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What a start of the job is given. Durations and sizes are texts such as `30s` and `512m`.

    A checkpoint keeps its streams, topics, windows and partitions; another start may change the
    rest, and add a path.
    """

    checkpoint: Annotated[
        str, typer.Option(help="The directory in which Spark keeps its position and state.")
    ]
    stream: Annotated[str, typer.Option(help="The sink stream that the job writes.")]
    policy: Annotated[Path, typer.Option(help="The policy file (TOML).")]
    source: Annotated[
        Source | None,
        typer.Option(
            help="Refuse the options of other sources.",
            show_default="what --path and --topic name",
        ),
    ] = None
    path: Annotated[
        list[str],
        typer.Option(help="A directory of event files, read recursively. Can be repeated."),
    ] = field(default_factory=list)
    topic: Annotated[list[str], typer.Option(help="A Kafka topic. Can be repeated.")] = field(
        default_factory=list
    )
    topic_pattern: Annotated[
        str | None,
        typer.Option(help="A regular expression of Java: every topic that it matches, also later."),
    ] = None
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Brokers of the cluster, as `host:9092,host:9092`.")
    ] = None
    starting: Annotated[
        str,
        typer.Option(help="Where a new topic begins: `earliest`, `latest` or a time (RFC 3339)."),
    ] = "earliest"
    max_offsets_per_trigger: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of records of each --topic in a batch."),
    ] = None
    kafka_option: Annotated[
        list[str],
        typer.Option(
            help="NAME=VALUE of Kafka's client (`kafka.*`) or of the connector; a secret only as"
            " `env:NAME` or `file:PATH`. Can be repeated."
        ),
    ] = field(default_factory=list)
    kafka_key: Annotated[
        KeyRule, typer.Option(help="What the key of a record must be; another record is refused.")
    ] = KeyRule.IGNORED
    value_format: Annotated[ValueFormat, typer.Option(help="Format of the records' values.")] = (
        ValueFormat.JSON
    )
    avro_schema: Annotated[
        Path | None,
        typer.Option(help="The Avro schema (a file) of all values, which are bare Avro."),
    ] = None
    schema_registry: Annotated[
        str | None,
        typer.Option(
            help="URL of a registry with Confluent's API; each value names its schema there."
        ),
    ] = None
    schema_registry_user: Annotated[
        str | None, typer.Option(help="`env:NAME` or `file:PATH` with NAME:PASSWORD of its user.")
    ] = None
    schema_registry_ca: Annotated[
        str | None, typer.Option(help="`env:NAME` or `file:PATH` with its authority's certificate.")
    ] = None
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss", help="Go on after the records that this start finds missing."
        ),
    ] = False
    jars: Annotated[
        list[str], typer.Option(help="A jar that Spark loads when it starts. Can be repeated.")
    ] = field(default_factory=list)
    packages: Annotated[
        list[str],
        typer.Option(
            help="Maven coordinates that Spark downloads when it starts. Can be repeated."
        ),
    ] = field(default_factory=list)
    format: Annotated[Format, typer.Option(help="Format of the files.")] = Format.JSON
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what is available now, then exit.")
    ] = False
    max_files_per_trigger: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of files of each --path in a batch.")
    ] = None
    trigger_interval: Annotated[
        str, typer.Option(help="Minimum time between the starts of two batches.")
    ] = "200ms"
    idle_timeout: Annotated[
        str | None,
        typer.Option(
            help="Time without events after which the clock closes windows, as `60s`; 0 disables.",
            show_default="60s with a topic, else 0",
        ),
    ] = None
    dsn: Annotated[
        str | None,
        typer.Option(envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords)."),
    ] = None
    key_groups: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=4096,
            help="Number of key groups of the state; fixed for a checkpoint.",
            show_default="as the checkpoint or savepoint has it; else four a partition",
        ),
    ] = None
    partitions: Annotated[
        int,
        typer.Option(min=1, help="Number of tasks that share the state; fixed for a checkpoint."),
    ] = STATE_PARTITIONS
    watermark_delay: Annotated[
        str, typer.Option(help="Delay of the watermark behind the newest event.")
    ] = "30s"
    late_cutoff: Annotated[
        str, typer.Option(help="Time after its end in which a window accepts corrections.")
    ] = "2m"
    future_tolerance: Annotated[
        str, typer.Option(help="How far ahead of its batch an event may be dated.")
    ] = "5m"
    state_memory: Annotated[
        str, typer.Option(help="Memory for the state in each process, outside the Java heap.")
    ] = "512m"
    max_restarts: Annotated[
        int,
        typer.Option(
            min=0, help="Consecutive restarts without a written batch; 0 disables restarts."
        ),
    ] = 8
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the Prometheus metrics; 0 disables.")
    ] = 0
    metrics_host: Annotated[str, typer.Option(help="Address of the Prometheus metrics.")] = (
        "127.0.0.1"
    )
    refused_rows: Annotated[
        int,
        typer.Option(
            min=0, help="Maximum refused rows of a batch; above it the whole batch is refused."
        ),
    ] = REFUSED_ROWS
    doorbell: Annotated[
        bool,
        typer.Option("--doorbell/--no-doorbell", help="Notify dispatchers after each batch."),
    ] = True
    from_savepoint: Annotated[
        str | None,
        typer.Option(
            help="Begin the checkpoint, which must be new, with the state of a savepoint."
        ),
    ] = None
    savepoint_every: Annotated[
        str | None,
        typer.Option(
            help="Write a savepoint to --savepoint-to in each such time, as `1h`, while the job"
            " runs.",
            show_default="none",
        ),
    ] = None
    savepoint_to: Annotated[
        str | None,
        typer.Option(help="The directory of these savepoints, best on another store."),
    ] = None
    savepoint_keep: Annotated[
        int, typer.Option(min=1, help="Number of these savepoints that are kept.")
    ] = 24
    keep_batches: Annotated[
        int, typer.Option(min=2, help="Number of batches that the checkpoint keeps to go back to.")
    ] = 100
    keep_for: Annotated[
        str | None,
        typer.Option(
            help="Also keep every batch that can begin in this time: 2h.", show_default="no time"
        ),
    ] = None
    master: Annotated[
        str | None,
        typer.Option(
            help="Where Spark runs tasks, as `spark://host:7077`.",
            show_default="all cores of this machine",
        ),
    ] = None
    conf: Annotated[
        list[str], typer.Option(help="A setting of Spark as NAME=VALUE. Can be repeated.")
    ] = field(default_factory=list)

    @property
    def has_topics(self) -> bool:
        """Whether there is a topic or a pattern of topics."""
        return bool(self.topic or self.topic_pattern)


_SECRET = re.compile(
    r"pass(word|phrase|wd)|pwd|secret|token|credential|jaas|(private|api|access|account)[._-]?key"
    r"|[.](key|sas|auth)\b[^=]*=|://([^/@\s]+|[^/@\s]*:[^@\s]*)@",
    re.IGNORECASE,
)
"""In the name or the value of a setting that may hold a secret; user and password in a URL."""

_SETTING = re.compile(r"([\w.-]+)=")
"""NAME=VALUE; a URL has no such name, only user and password in front of an equals sign."""

_REFERENCE = re.compile(r"[\w.-]+=(env|file):")
"""A setting whose value names where a secret is."""

_REFERENCES = ("schema_registry_user", "schema_registry_ca")
"""Options whose whole value must be such a reference, and is a secret if it is none."""


PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print these options as such a file, and exit.")
]


def command(run: Callable[[JobOptions], None]) -> Callable[..., None]:
    """Return a command that takes the options, from the command line or a file, and runs `run`."""

    def start(*, print_config: bool, config: Path | None, **given: Any) -> None:  # noqa: ARG001 - its callback reads it
        options = JobOptions(**given)
        if print_config:
            typer.echo("\n".join(written(options)))
        else:
            run(options)

    parameters = [_parameter(name, kind, default) for name, kind, default in _declared()]
    parameters.append(_parameter("config", Config, None))
    parameters.append(_parameter("print_config", PrintConfig, False))
    start.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    start.__annotations__ = {each.name: each.annotation for each in parameters}
    start.__doc__ = run.__doc__
    return start


def read_config(path: Path) -> dict[str, Any]:
    """Return the options of a file by name; raises CommandError (usage)."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise _unusable(path, f"it cannot be read: {error}") from error
    kinds = {name: get_args(kind) for name, kind, _ in _declared()}
    for name, value in content.items():
        if name not in kinds:
            raise _unusable(path, f"there is no option {name!r}; there are {', '.join(kinds)}")
        kind, info = kinds[name]
        # The value is not quoted: it may be a secret.
        if type(value) is not _written_as(kind) or (
            isinstance(value, list) and not all(isinstance(each, str) for each in value)
        ):
            raise _unusable(path, f"{name} must be {_NOUNS[_written_as(kind)]}")
        if not _fits(value, kind, info):
            raise _unusable(path, f"{name} must be {_accepted(kind, info)}, not {value!r}")
    return content


def written(options: JobOptions) -> Iterator[str]:
    """Yield the lines of a file that gives the same options, without what may be a secret."""
    for name, kind, default in _declared():
        value = getattr(options, name)
        if name == "dsn":
            yield "# dsn is not written, because it may hold a password: set HOLDFAST_DSN"
            continue
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        hidden = [each for each in texts if _may_be_secret(name, each)]
        if hidden:
            names = ", ".join(m[1] for each in hidden if (m := _SETTING.match(each)))
            yield f"# {name} {names}".rstrip() + " is not written, because it may be a secret"
            value = [each for each in texts if each not in hidden] or None
        if value in (None, [], default):
            continue
        is_text = _written_as(get_args(kind)[0]) is str
        yield f"{name} = {_toml(str(value) if is_text else value)}"
    if needs_manager(options.checkpoint):
        yield "# For a checkpoint there Spark also gets, unless `conf` has another value:"
        given = {each.partition("=")[0].strip() for each in options.conf}
        limits = STORE_LIMITS if scheme_of(options.checkpoint) == "s3a" else {}
        for name, value in limits.items():
            if f"spark.hadoop.{name}" not in given:
                yield f"# spark.hadoop.{name}={value}"
        yield f"# {MANAGER_SETTING}={MANAGER_CLASS}"


def _may_be_secret(option: str, text: str) -> bool:
    if option in _REFERENCES:
        return not text.startswith(("env:", "file:"))
    return bool(_SECRET.search(text)) and not _REFERENCE.match(text)


def _choices(kind: Any) -> list[str]:
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return [each.value for k in kinds if isinstance(k, type) and issubclass(k, Enum) for each in k]


def _fits(value: Any, kind: Any, info: Any) -> bool:
    if choices := _choices(kind):
        return value in choices
    if type(value) is not int:
        return True
    return (info.min is None or value >= info.min) and (info.max is None or value <= info.max)


def _accepted(kind: Any, info: Any) -> str:
    if choices := _choices(kind):
        return f"one of {', '.join(choices)}"
    return f"at least {info.min}" if info.max is None else f"{info.min} to {info.max}"


def _declared() -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the annotated type and the default of each option."""
    kinds = get_type_hints(JobOptions, include_extras=True)
    for each in fields(JobOptions):
        default = Parameter.empty if each.default is MISSING else each.default
        yield each.name, kinds[each.name], [] if each.default_factory is list else default


def _parameter(name: str, kind: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)


_NOUNS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list of texts"}


def _written_as(kind: Any) -> type:
    """Return the type that a value of an option has in a file."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    first = get_origin(kinds[0]) or kinds[0]
    return first if first in _NOUNS else str


def _toml(value: Any) -> str:
    """Return a value as TOML, whose texts and lists are also JSON but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _unusable(path: Path, what: str) -> CommandError:
    return CommandError(
        f"--config {path}: {what}. Nothing was started; correct the file.",
        ExitCode.USAGE,
        code="invalid_config",
    )


def _load(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        context.default_map = read_config(path)
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=_load,
        help='A file (TOML) with options by their names, as `trigger_interval = "1s"`. The command'
        " line and the environment come first.",
    ),
]
