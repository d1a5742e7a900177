"""A broker as a test sees it: topics with names of their own, records written and read."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker, client_settings
from holdfast.deploy.local.kafka.topics import SECONDS


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
        topics.make(self.admin, name, partitions, settings)
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
        writer = topics.Writer(self.bootstrap_servers)
        for value in values:
            writer.write(
                topic,
                value,
                partition=partition,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )
        writer.flush()

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the offset behind the last record of each partition."""
        return topics.ends(self.bootstrap_servers, topic)

    def read(self, topic: str) -> list[Message]:
        """Return the records that the topic holds now, partition by partition."""
        return [
            m for messages in topics.read(self.bootstrap_servers, topic).values() for m in messages
        ]
