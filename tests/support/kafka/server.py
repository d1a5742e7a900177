"""A broker as a test sees it: topics with names of their own, records written and read."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from deploy.local.kafka.broker import Broker, client_settings

SECONDS = 30.0


@dataclass
class KafkaServer:
    """A running broker and what tests do with it."""

    broker: Broker

    @property
    def bootstrap_servers(self) -> str:
        return self.broker.bootstrap_servers

    @cached_property
    def admin(self) -> AdminClient:
        # Kept, because a request ends with its client.
        return AdminClient(client_settings(self.bootstrap_servers))

    def make_topic(
        self,
        partitions: int = 1,
        *,
        name: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Make a topic and return its name, which nobody used before unless it is given."""
        name = name or f"events-{secrets.token_hex(6)}"
        topic = NewTopic(name, partitions, 1, config=dict(settings or {}))
        self.admin.create_topics([topic])[name].result(SECONDS)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """Give the topic more partitions, `total` in all."""
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(SECONDS)

    def delete_topic(self, topic: str) -> None:
        """Delete the topic with its records."""
        self.admin.delete_topics([topic])[topic].result(SECONDS)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(SECONDS)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        partition: int = 0,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """Write records into one partition in this order; returns once all are acknowledged."""
        failed: list[object] = []
        settings = {**client_settings(self.bootstrap_servers), "enable.idempotence": True}
        producer = Producer(settings)
        for value in values:
            producer.produce(
                topic,
                value,
                key,
                partition=partition,
                timestamp=timestamp_ms,
                headers=dict(headers or {}),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        left = producer.flush(SECONDS)
        assert (left, failed) == (0, [])

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the offset behind the last record of each partition."""
        consumer = Consumer({**client_settings(self.bootstrap_servers), "group.id": topic})
        try:
            partitions = consumer.list_topics(topic, SECONDS).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), SECONDS)[1]
                for number in sorted(partitions)
            }
        finally:
            consumer.close()

    def read(self, topic: str) -> list[Message]:
        """Return the records that the topic holds now, partition by partition."""
        ends = self.end_offsets(topic)
        consumer = Consumer(
            {
                **client_settings(self.bootstrap_servers),
                "group.id": secrets.token_hex(6),
                "enable.auto.commit": False,
            }
        )
        found: list[Message] = []
        try:
            for number, end in ends.items():
                place = TopicPartition(topic, number)
                at, _ = consumer.get_watermark_offsets(place, SECONDS)
                consumer.assign([TopicPartition(topic, number, at)])
                while at < end:
                    messages = consumer.consume(min(end - at, 1000), SECONDS)
                    assert messages, f"{topic}/{number} did not answer from offset {at}"
                    assert [m.error() for m in messages if m.error()] == []
                    found += messages
                    at = (messages[-1].offset() or 0) + 1
        finally:
            consumer.close()
        return found
