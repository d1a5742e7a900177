"""The options that say where events come from, checked together."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input.formats import KeyRule, ValueFormat

if TYPE_CHECKING:
    from holdfast.spark_app.command.options import JobOptions
    from holdfast.spark_app.input.schemas import Schemas


class Source(StrEnum):
    """Where events come from."""

    FILES = "files"
    KAFKA = "kafka"


def require(options: "JobOptions") -> None:
    """Raise CommandError (usage) for options that do not go together."""
    if options.source is Source.FILES and (option := _of_topics(options)):
        raise _usage(f"{option} is an option of topics, and --source files reads none")
    if options.source is Source.KAFKA and (options.path or options.max_files_per_trigger):
        option = "--path" if options.path else "--max-files-per-trigger"
        raise _usage(f"{option} is an option of files, and --source kafka reads none")
    if not options.path and not options.has_topics:
        wanted = {Source.FILES: "--path", Source.KAFKA: "--topic"}
        raise _usage(
            f"there is nothing to read: {wanted[options.source]} is missing"
            if options.source
            else "there is nothing to read: name directories with --path, or topics with"
            " --topic or --topic-pattern"
        )
    if not options.has_topics:
        if option := _of_topics(options):
            raise _usage(f"{option} is an option of topics, and no --topic is named")
        return
    if options.topic and options.topic_pattern:
        raise _usage(
            "--topic and --topic-pattern exclude each other: a topic of both would be read twice"
        )
    if repeated := sorted({name for name in options.topic if options.topic.count(name) > 1}):
        raise _usage(f"--topic {repeated[0]} is there twice, and would be read twice")
    _require_schema(options)
    if options.bootstrap_servers is None:
        raise _usage("--bootstrap-servers is missing: it names brokers of the topics' cluster")


def described(options: "JobOptions", *, submitted: bool) -> dict[str, Any]:
    """Return what `lifecycle.run.run_described` takes of it, and the jars of the JVM.

    `submitted`: spark-submit has started the JVM. Raises CommandError (usage).
    """
    from holdfast.spark_app.input import connector, kafka_options  # noqa: PLC0415 - imports Arrow
    from holdfast.spark_app.input.sources import Kafka  # noqa: PLC0415 - as above

    if submitted and (options.jars or options.packages):
        raise _usage(
            "--jars and --packages are read when a JVM starts, and spark-submit has started"
            " this one: pass them to spark-submit, before the program"
        )
    if not options.has_topics:
        return {
            "paths": tuple(options.path),
            "jars": connector.given(tuple(options.jars), tuple(options.packages)),
        }
    for topic in options.topic:
        kafka_options.require_topic(topic)
    try:
        starting = kafka_options.starting(options.starting)
    except ValueError as error:
        raise _usage(str(error)) from error
    names = [options.topic_pattern] if options.topic_pattern else options.topic
    connected = kafka_options.connection(
        options.bootstrap_servers or "",
        options.kafka_option,
        options.max_offsets_per_trigger,
        accept_data_loss=options.accept_data_loss,
    )
    schemas = _schemas(options)
    jars = connector.Jars()
    if not submitted:
        jars = connector.find(tuple(options.jars), tuple(options.packages))
    return {
        "paths": tuple(options.path),
        "topics": tuple(
            Kafka(
                name,
                is_pattern=bool(options.topic_pattern),
                value_format=options.value_format,
                schema="" if schemas is None else schemas.recorded,
                key=options.kafka_key,
                starting=starting,
            )
            for name in names
        ),
        "connection": connected,
        "schemas": schemas,
        "jars": jars,
    }


def _schemas(options: "JobOptions") -> "Schemas | None":
    if options.value_format is not ValueFormat.AVRO:
        return None
    from holdfast.spark_app.input import schemas  # noqa: PLC0415 - imports Arrow

    if options.schema_registry is not None:
        return schemas.of_registry(
            options.schema_registry, options.schema_registry_user, options.schema_registry_ca
        )
    return schemas.of_file(options.avro_schema or Path())


def _require_schema(options: "JobOptions") -> None:
    values = {
        "--avro-schema": options.avro_schema,
        "--schema-registry": options.schema_registry,
        "--schema-registry-user": options.schema_registry_user,
        "--schema-registry-ca": options.schema_registry_ca,
    }
    given = [name for name, value in values.items() if value is not None]
    if options.value_format is not ValueFormat.AVRO:
        if given:
            raise _usage(f"{given[0]} is an option of --value-format avro")
    elif (options.avro_schema is None) == (options.schema_registry is None):
        raise _usage(
            "--value-format avro needs either --avro-schema, the schema of all values, or"
            " --schema-registry, in which each value names its own"
        )
    elif options.schema_registry is None and len(given) > 1:
        raise _usage(f"{given[1]} is an option of --schema-registry")


def _of_topics(options: "JobOptions") -> str | None:
    """Return the first option of topics that was given."""
    given = {
        "--topic": options.topic,
        "--topic-pattern": options.topic_pattern,
        "--bootstrap-servers": options.bootstrap_servers,
        "--starting": options.starting != "earliest",
        "--max-offsets-per-trigger": options.max_offsets_per_trigger,
        "--kafka-option": options.kafka_option,
        "--kafka-key": options.kafka_key is not KeyRule.IGNORED,
        "--accept-data-loss": options.accept_data_loss,
        "--value-format": options.value_format is not ValueFormat.JSON,
    }
    return next((name for name, value in given.items() if value), None)


def _usage(said: str) -> CommandError:
    return CommandError(
        f"{said}. Nothing was started.", ExitCode.USAGE, code="conflicting_parameters"
    )
