"""The sources of a job: directories of event files, Kafka topics, and the ticks of the idle clock.

Spark knows a query's sources by their position alone (`sources/0`, `sources/1`, the lines of
`offsets/N`). A checkpoint therefore records them in their order, and every later run keeps it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import normpath
from typing import Any

from holdfast.spark_app.input.formats import Format, KeyRule, ValueFormat
from holdfast.spark_app.input.source import local


@dataclass(frozen=True, slots=True)
class Files:
    """A directory of event files."""

    path: str
    format: Format

    @property
    def place(self) -> str:
        """The path in one spelling: a local one without its scheme; links are not resolved."""
        folder = local(self.path)
        return normpath(self.path) if folder is None else normpath(folder)


@dataclass(frozen=True, slots=True)
class Kafka:
    """A topic, or all topics that match a pattern."""

    topic: str
    """The name, or the pattern (a regular expression of Java)."""
    is_pattern: bool = False
    value_format: ValueFormat = ValueFormat.JSON
    schema: str = ""
    """Of Avro values: the fingerprint of their schema, or `registry`."""
    key: KeyRule = KeyRule.IGNORED
    starting: str = "earliest"
    """Where it began: a word, or a time."""
    cluster_id: str = ""
    """Empty until the broker was asked."""
    topic_ids: tuple[tuple[str, str], ...] = ()
    """Name and id of each topic, sorted: a topic that is recreated has another."""

    @property
    def option(self) -> str:
        """The option that names it."""
        return f"{'--topic-pattern' if self.is_pattern else '--topic'} {self.topic}"

    @property
    def place(self) -> tuple[str, bool]:
        """What two starts call the same source."""
        return self.topic, self.is_pattern

    @property
    def pattern(self) -> str:
        """The pattern for whole names: Spark by itself would also take a topic for a part of its
        name.

        >>> Kafka("eu|us", is_pattern=True).pattern
        '\\\\A(?:eu|us)\\\\z'
        """
        return rf"\A(?:{self.topic})\z"

    def with_topics(self, ids: Mapping[str, str]) -> "Kafka":
        """Return the source with more topics; those that it has keep their ids."""
        both = {**ids, **dict(self.topic_ids)}
        return replace(self, topic_ids=tuple(sorted(both.items())))


@dataclass(frozen=True, slots=True)
class Ticks:
    """The idle clock (`ticks`)."""


Source = Files | Kafka | Ticks


class SourcesDiffer(Exception):
    """A start lacks a source of its checkpoint."""


def to_json(source: Source) -> dict[str, Any]:
    """Return a source as `from_json` reads it."""
    match source:
        case Files():
            return {"kind": "files", "path": source.path, "format": source.format.value}
        case Kafka():
            return {
                "kind": "kafka",
                "pattern" if source.is_pattern else "topic": source.topic,
                "value_format": source.value_format.value,
                **({"schema": source.schema} if source.schema else {}),
                "key": source.key.value,
                "starting": source.starting,
                "cluster_id": source.cluster_id,
                "topic_ids": dict(source.topic_ids),
            }
        case Ticks():
            return {"kind": "ticks"}


def from_json(kept: Mapping[str, Any]) -> Source:
    """Return what `to_json` wrote; else raises KeyError or ValueError."""
    match kept["kind"]:
        case "files":
            return Files(kept["path"], Format(kept["format"]))
        case "kafka":
            return Kafka(
                kept["pattern"] if "pattern" in kept else kept["topic"],
                is_pattern="pattern" in kept,
                value_format=ValueFormat(kept["value_format"]),
                schema=kept.get("schema", ""),
                key=KeyRule(kept["key"]),
                starting=kept["starting"],
                cluster_id=kept["cluster_id"],
                topic_ids=tuple(sorted(dict(kept["topic_ids"]).items())),
            )
        case "ticks":
            return Ticks()
        case other:
            raise ValueError(f"{other!r} is not a kind of source")


def followed_by(kept: Sequence[Source], wanted: Sequence[Source]) -> tuple[Source, ...]:
    """Return the sources of a checkpoint, and after them those that this start adds.

    A source that is kept stays as it was recorded; a pattern may have more topics. The ticks stay,
    whether wanted or not. Raises SourcesDiffer when a directory or a topic is missing, is read in
    another way, or is that of another cluster.
    """
    new = {each.place: each for each in wanted if not isinstance(each, Ticks)}
    found: list[Source] = []
    differences: list[str] = []
    for each in kept:
        now = None if isinstance(each, Ticks) else new.pop(each.place, None)
        if (said := _difference(each, now)) is not None:
            differences.append(said)
        found.append(_with_new_topics(each, now))
    if differences:
        raise SourcesDiffer("; ".join(differences))
    ticks = [each for each in wanted if isinstance(each, Ticks) and each not in kept]
    return (*found, *new.values(), *ticks)


def _with_new_topics(kept: Source, now: Source | None) -> Source:
    if isinstance(kept, Kafka) and isinstance(now, Kafka):
        return kept.with_topics(dict(now.topic_ids))
    return kept


def _difference(kept: Source, now: Source | None) -> str | None:
    if isinstance(kept, Kafka):
        if not isinstance(now, Kafka):
            return f"{kept.option} is missing"
        return _kafka_difference(kept, now)
    if isinstance(kept, Files):
        if not isinstance(now, Files):
            return f"--path {kept.path} is missing"
        if now.format is not kept.format:
            return f"--format was {kept.format.value}, is {now.format.value}"
    return None


def _kafka_difference(kept: Kafka, now: Kafka) -> str | None:
    if now.cluster_id and now.cluster_id != kept.cluster_id:
        return (
            f"{kept.option} was read from the cluster {kept.cluster_id}, and --bootstrap-servers"
            f" leads to the cluster {now.cluster_id}, whose offsets are others"
        )
    if now.value_format.value != kept.value_format.value:
        return f"--value-format was {kept.value_format.value}, is {now.value_format.value}"
    if now.schema != kept.schema:
        return (
            f"the schema of {kept.option} was {kept.schema}, is {now.schema} (--avro-schema or"
            " --schema-registry)"
        )
    if now.key is not kept.key:
        return f"--kafka-key was {kept.key.value}, is {now.key.value}"
    return None
