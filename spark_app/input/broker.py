"""Questions to a Kafka cluster, through the client in the connector's jars.

Spark knows a topic by its name and a number for each partition. Where a topic was deleted and made
again, the same numbers mean other records; only the cluster can tell, by the topic's id.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input.connector import missing
from holdfast.spark_app.input.kafka_faults import KafkaFault, Thrown, away, fault
from holdfast.spark_app.input.kafka_options import Connection
from holdfast.spark_app.input.sources import Kafka

SECONDS: Final = 20
"""For one answer; the client gives up before (`kafka_options.DEFAULTS`)."""

_CONNECTOR: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of a topic, as text, where the broker gives none."""


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


class Range(NamedTuple):
    """The offsets that a partition has: the first one, and the one after the last."""

    first: int
    end: int


def compiled(jvm: Any, source: Kafka) -> Any:
    """Return the pattern of a source, for whole names; raises CommandError (usage).

    The text alone is compiled too: of `a)|(.*`, half would be outside of the anchors.
    """
    compile_ = jvm.java.util.regex.Pattern.compile
    try:
        compile_(source.topic)
        return compile_(source.pattern)
    except (Py4JJavaError, IllegalArgumentException) as error:
        raise CommandError(
            f"{source.option} is not a regular expression of Java:"
            f" {' '.join(str(error).split())}. Nothing was read or written.",
            ExitCode.USAGE,
            code="invalid_topic_pattern",
        ) from error


class Broker:
    """A client of a cluster. Any thread may use it."""

    def __init__(self, spark: SparkSession, connected: Connection) -> None:
        """Raise CommandError where Spark has no connector, and KafkaFault for a wrong option."""
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - PySpark has no public way to Kafka's client
        self._connected = connected
        self._require_connector()
        settings = self._jvm.java.util.Properties()
        for name, value in connected.client().items():
            settings.put(name, value)
        self._seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS
        try:
            self._client = self._kafka.clients.admin.AdminClient.create(settings)
        except Py4JJavaError as error:
            raise self._fault(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a JVM that has died has closed them."""
        with suppress(Py4JError, OSError):
            self._client.close(self._jvm.java.time.Duration.ZERO)

    @property
    def servers(self) -> str:
        """The servers that were named."""
        return self._connected.servers

    def located(self, source: Kafka) -> Kafka:
        """Return a source with the ids of its cluster and of the topics that it has now.

        Raises KafkaFault, also for a topic that does not exist.
        """
        found = self._answer(lambda: self._client.describeCluster().clusterId())
        if found is None:
            raise _without_ids(f"the cluster at {self.servers} has no id")
        ids = self.topic_ids(source)
        return replace(source, cluster_id=str(found), topic_ids=tuple(sorted(ids.items())))

    def topic_ids(self, source: Kafka) -> dict[str, str]:
        """Return the id of each topic of a source; raises KafkaFault."""
        described = self._described(self._names(source))
        ids = {name: str(topic.topicId().toString()) for name, topic in described.items()}
        if nameless := sorted(name for name, known in ids.items() if known == _NO_ID):
            raise _without_ids(f"the cluster at {self.servers} has no id for {nameless[0]}")
        return ids

    def ranges(self, source: Kafka) -> dict[Partition, Range]:
        """Return the offsets of each partition of a source that a batch can read.

        An open transaction ends the range. Raises KafkaFault.
        """
        partitions = self._partitions(source)
        spec = self._kafka.clients.admin.OffsetSpec
        first = self._offsets(partitions, spec.earliest())
        end = self._offsets(partitions, spec.latest())
        return {each: Range(first[each], end[each]) for each in partitions}

    def written(self, source: Kafka) -> dict[Partition, int]:
        """Return the offset after the last record of each partition of a source.

        Records of open transactions count. Raises KafkaFault.
        """
        latest = self._kafka.clients.admin.OffsetSpec.latest()
        return self._offsets(self._partitions(source), latest, committed=False)

    def _partitions(self, source: Kafka) -> list[Partition]:
        described = self._described(self._names(source))
        return [
            Partition(name, int(each.partition()))
            for name, topic in described.items()
            for each in topic.partitions()
        ]

    def _names(self, source: Kafka) -> list[str]:
        if not source.is_pattern:
            return [source.topic]
        pattern = compiled(self._jvm, source)
        names = self._answer(lambda: self._client.listTopics().names())
        return sorted(str(name) for name in names if pattern.matcher(name).matches())

    def _described(self, names: Sequence[str]) -> Mapping[str, Any]:
        asked = self._jvm.java.util.ArrayList()
        for name in names:
            asked.add(name)
        try:
            found = self._answer(lambda: self._client.describeTopics(asked).allTopicNames())
        except KafkaFault as error:
            if error.moved:
                said = f"{', '.join(names)}: {error}"
                raise KafkaFault(said, permanent=error.permanent, moved=True) from error
            raise
        return {str(name): found[name] for name in found}

    def _offsets(
        self, partitions: Iterable[Partition], spec: Any, *, committed: bool = True
    ) -> dict[Partition, int]:
        common = self._kafka.common
        asked = self._jvm.java.util.HashMap()
        for each in partitions:
            asked.put(common.TopicPartition(each.topic, each.number), spec)
        level = common.IsolationLevel
        options = self._kafka.clients.admin.ListOffsetsOptions(
            level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
        )
        found = self._answer(lambda: self._client.listOffsets(asked, options).all())
        return {
            Partition(str(at.topic()), int(at.partition())): int(found[at].offset()) for at in found
        }

    @property
    def _kafka(self) -> Any:
        return self._jvm.org.apache.kafka

    def _answer(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask().get(SECONDS, self._seconds)
        except Py4JJavaError as error:
            raise self._fault(error) from error

    def _fault(self, error: Py4JJavaError) -> KafkaFault:
        chain: list[Thrown] = []
        throwable: Any = error.java_exception
        while throwable is not None and len(chain) < 20:
            kind = throwable.getClass().getSimpleName()
            said = self._connected.masked(str(throwable.getMessage() or kind))
            chain.append(Thrown(kind, said))
            throwable = throwable.getCause()
        found = fault(chain, self.servers)
        return found or away(self.servers, " ".join(chain[-1].message.split()).rstrip(". "))

    def _require_connector(self) -> None:
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            self._jvm.java.lang.Class.forName(_CONNECTOR, False, loader)
        except Py4JJavaError as error:
            raise missing("Spark was started without them") from error


def _without_ids(said: str) -> KafkaFault:
    return KafkaFault(
        f"{said}, so a topic that was deleted and made again could not be told from the one before."
        " Nothing was read or written. Kafka has had ids since 2.8; ask whoever runs the cluster.",
        permanent=True,
    )
