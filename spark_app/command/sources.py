"""The options that say where events come from, checked together."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input.formats import KeyRule, ValueFormat

if TYPE_CHECKING:
    from holdfast.spark_app.input.schemas import Schemas


class Source(StrEnum):
    """Where events come from."""

    FILES = "files"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks for."""

    paths: Sequence[str]
    topics: Sequence[str]
    pattern: str | None
    servers: str | None
    starting: str
    max_offsets: int | None
    options: Sequence[str]
    key: KeyRule
    value_format: ValueFormat
    schema: Path | None
    registry: str | None
    registry_user: str | None
    registry_ca: str | None
    accept_data_loss: bool
    jars: Sequence[str]
    packages: Sequence[str]

    @property
    def has_topics(self) -> bool:
        """Whether there is a topic or a pattern of topics."""
        return bool(self.topics or self.pattern)

    def require(self, source: Source | None, max_files: int | None) -> None:
        """Raise CommandError (usage) for options that do not go together."""
        if source is Source.FILES and (option := self._of_topics()):
            raise _usage(f"{option} is an option of topics, and --source files reads none")
        if source is Source.KAFKA and (self.paths or max_files):
            option = "--path" if self.paths else "--max-files-per-trigger"
            raise _usage(f"{option} is an option of files, and --source kafka reads none")
        if not self.paths and not self.has_topics:
            wanted = {Source.FILES: "--path", Source.KAFKA: "--topic"}
            raise _usage(
                f"there is nothing to read: {wanted[source]} is missing"
                if source
                else "there is nothing to read: name directories with --path, or topics with"
                " --topic or --topic-pattern"
            )
        if not self.has_topics:
            if option := self._of_topics():
                raise _usage(f"{option} is an option of topics, and no --topic is named")
            return
        if self.topics and self.pattern:
            raise _usage(
                "--topic and --topic-pattern exclude each other: a topic of both would be read"
                " twice"
            )
        if repeated := sorted({name for name in self.topics if self.topics.count(name) > 1}):
            raise _usage(f"--topic {repeated[0]} is there twice, and would be read twice")
        self._require_schema()
        if self.servers is None:
            raise _usage("--bootstrap-servers is missing: it names brokers of the topics' cluster")

    def described(self, *, submitted: bool) -> dict[str, Any]:
        """Return what `lifecycle.run.run_described` takes of it, and the jars of the JVM.

        `submitted`: spark-submit has started the JVM. Raises CommandError (usage).
        """
        from holdfast.spark_app.input import connector, kafka_options  # noqa: PLC0415 - imports Arrow
        from holdfast.spark_app.input.sources import Kafka  # noqa: PLC0415 - as above

        if submitted and (self.jars or self.packages):
            raise _usage(
                "--jars and --packages are read when a JVM starts, and spark-submit has started"
                " this one: pass them to spark-submit, before the program"
            )
        if not self.has_topics:
            return {
                "paths": tuple(self.paths),
                "jars": connector.given(tuple(self.jars), tuple(self.packages)),
            }
        for topic in self.topics:
            kafka_options.require_topic(topic)
        try:
            starting = kafka_options.starting(self.starting)
        except ValueError as error:
            raise _usage(str(error)) from error
        names = [self.pattern] if self.pattern else self.topics
        connected = kafka_options.connection(
            self.servers or "",
            self.options,
            self.max_offsets,
            accept_data_loss=self.accept_data_loss,
        )
        schemas = self._schemas()
        jars = connector.Jars()
        if not submitted:
            jars = connector.find(tuple(self.jars), tuple(self.packages))
        return {
            "paths": tuple(self.paths),
            "topics": tuple(
                Kafka(
                    name,
                    is_pattern=bool(self.pattern),
                    value_format=self.value_format,
                    schema="" if schemas is None else schemas.recorded,
                    key=self.key,
                    starting=starting,
                )
                for name in names
            ),
            "connection": connected,
            "schemas": schemas,
            "jars": jars,
        }

    def _schemas(self) -> "Schemas | None":
        if self.value_format is not ValueFormat.AVRO:
            return None
        from holdfast.spark_app.input import schemas  # noqa: PLC0415 - imports Arrow

        if self.registry is not None:
            return schemas.of_registry(self.registry, self.registry_user, self.registry_ca)
        return schemas.of_file(self.schema or Path())

    def _require_schema(self) -> None:
        options = {
            "--avro-schema": self.schema,
            "--schema-registry": self.registry,
            "--schema-registry-user": self.registry_user,
            "--schema-registry-ca": self.registry_ca,
        }
        given = [name for name, value in options.items() if value is not None]
        if self.value_format is not ValueFormat.AVRO:
            if given:
                raise _usage(f"{given[0]} is an option of --value-format avro")
        elif (self.schema is None) == (self.registry is None):
            raise _usage(
                "--value-format avro needs either --avro-schema, the schema of all values, or"
                " --schema-registry, in which each value names its own"
            )
        elif self.registry is None and len(given) > 1:
            raise _usage(f"{given[1]} is an option of --schema-registry")

    def _of_topics(self) -> str | None:
        """Return the first option of topics that was given."""
        given = {
            "--topic": self.topics,
            "--topic-pattern": self.pattern,
            "--bootstrap-servers": self.servers,
            "--starting": self.starting != "earliest",
            "--max-offsets-per-trigger": self.max_offsets,
            "--kafka-option": self.options,
            "--kafka-key": self.key is not KeyRule.IGNORED,
            "--accept-data-loss": self.accept_data_loss,
            "--value-format": self.value_format is not ValueFormat.JSON,
        }
        return next((name for name, value in given.items() if value), None)


def _usage(said: str) -> CommandError:
    return CommandError(f"{said}. Nothing was started.", ExitCode.USAGE)
