"""Whether the topics of a running job are still those that its checkpoint has recorded.

A topic that is deleted and made again under its name has other records under the same offsets, and
Spark notices that only where there are fewer. So the job asks for the topics' ids: before a batch
is read, which also records new topics of a pattern, and once more after it was read and before
anything is written. An id never comes back, so between the two the records were of that topic.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from holdfast.spark_app.checkpoint import shape
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint.topic_positions import positions
from holdfast.spark_app.input.broker import Broker
from holdfast.spark_app.input.kafka_faults import KafkaFault
from holdfast.spark_app.input.sources import Kafka, Source
from holdfast.spark_app.operator.job import Job


@contextmanager
def broker_of(spark: SparkSession, job: Job) -> Iterator[Broker | None]:
    """Yield the broker of a job's topics; None for a job without one. Raises as `Broker`."""
    if job.connection is None:
        yield None
        return
    with Broker(spark, job.connection) as broker:
        yield broker


def located(job: Job, broker: Broker | None) -> Job:
    """Return a job whose topics have the ids of cluster and topics; raises KafkaFault."""
    if broker is None:
        return job
    return replace(job, topics=tuple(map(broker.located, job.topics)))


class TopicWatch:
    """The topics of a claimed job."""

    def __init__(self, files: CheckpointFiles, job: Job, broker: Broker) -> None:
        self._files = files
        self._sources = list(job.sources)
        self._broker = broker

    def require(self, _batch_id: int) -> None:
        """Record topics that are new in a pattern; raise KafkaFault as `require_same`."""
        known = list(self._sources)
        for number, source in enumerate(known):
            if isinstance(source, Kafka):
                now = self._same(source)
                known[number] = source.with_topics(now)
        if known != self._sources:
            self._record(known)
            self._sources = known

    def require_same(self) -> None:
        """Raise KafkaFault where a topic is another one now, or the cluster cannot tell."""
        for source in self._sources:
            if isinstance(source, Kafka):
                self._same(source)

    def is_read(self) -> bool:
        """Return whether every record that the cluster has is in a plan; raises KafkaFault.

        Those of an open transaction are in none, and may be events when it is committed.
        """
        planned = self._files.planned()
        for number, source in enumerate(self._sources):
            if not isinstance(source, Kafka):
                continue
            line = planned.sources[number] if planned and number < len(planned.sources) else ""
            try:
                at = positions(line)
            except ValueError:
                return False
            written = self._broker.written(source)
            if any(at.get(one, -1) < end for one, end in written.items()):
                return False
        return True

    def _same(self, source: Kafka) -> dict[str, str]:
        now = self._broker.topic_ids(source)
        for name, recorded in source.topic_ids:
            if now.get(name, recorded) != recorded:
                raise KafkaFault(
                    f"the topic {name} was deleted and made again under its name. Nothing of the"
                    " batch was written. A start names what is missing, and --accept-data-loss goes"
                    " on with the new topic.",
                    moved=True,
                )
        return now

    def _record(self, sources: list[Source]) -> None:
        kept = self._files.read_json(shape.FILE, shape.VERSION)
        if kept is None:
            raise self._files.missing(shape.FILE)
        text = shape.grown(kept, self._files.location, sources)
        if text is not None:
            self._files.write(shape.FILE, text)
