"""Topics of a broker: made, written in order, read from begin to end."""

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.deploy.local.kafka.broker import client_settings
from holdfast.sink.contract.exits import CommandError

T = TypeVar("T")

SECONDS = 30.0
BATCH = 1000
POLL_SECONDS = 0.2


def make(
    admin: AdminClient, name: str, partitions: int, settings: Mapping[str, str] | None = None
) -> None:
    """Make a topic of one copy; returns once its partitions can be written and read."""
    futures = admin.create_topics([NewTopic(name, partitions, 1, config=dict(settings or {}))])
    futures[name].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while len(admin.list_topics(name, SECONDS).topics[name].partitions) < partitions:
        if time.monotonic() > deadline:
            raise CommandError(
                f"the topic {name} was not ready after {SECONDS:.0f} s.", code="topic_not_ready"
            )


def partition_of(line: str, partitions: int) -> int:
    """Return the partition of an event in JSON: that of its merchant, where it has one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    merchant = event.get("merchant_id") if isinstance(event, dict) else None
    key = merchant if isinstance(merchant, str) and merchant else line
    return crc32(key.encode(errors="surrogatepass")) % partitions


@dataclass
class Writer:
    """Writes records in order, also across a kill of the broker; none is there twice."""

    bootstrap_servers: str
    _failed: list[KafkaError] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Idempotence: the broker recognises a batch that is sent again. The timeout of a record is
        # longer than any restart of the broker here.
        settings = {"enable.idempotence": True, "delivery.timeout.ms": 300_000, "linger.ms": 5}
        self._producer = Producer({**client_settings(self.bootstrap_servers), **settings})

    def write(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        partition: int = 0,
        key: bytes | str | None = None,
        timestamp_ms: int = 0,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Send a record to a partition; it is acknowledged when `flush` has returned.

        Waits while the queue of records is full; raises `CommandError` for a record that cannot be
        sent.
        """
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._acknowledged,
                    timestamp=timestamp_ms,
                    headers=dict(headers or {}),
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"the broker took no record of {topic} within {SECONDS:.0f} s. What it"
                        " acknowledged before is kept.",
                        code="records_not_acknowledged",
                    ) from None
                self._producer.poll(POLL_SECONDS)
            except KafkaException as error:
                size = len(value.encode() if isinstance(value, str) else value or b"")
                raise CommandError(
                    f"a record of {size} bytes cannot be written to {topic}: {error.args[0].str()}."
                    " What the broker acknowledged before is kept.",
                    code="record_not_written",
                ) from None
            else:
                self._producer.poll(0)
                return

    def poll(self) -> None:
        """Take the acknowledgements that have come."""
        self._producer.poll(0)

    @property
    def pending(self) -> int:
        """The number of records that are not acknowledged yet."""
        return len(self._producer)

    def flush(self, seconds: float = SECONDS) -> None:
        """Wait until all records are acknowledged; raises `CommandError` if one is not."""
        left = self._producer.flush(seconds)
        if left or self._failed:
            why = f": {self._failed[0].str()}" if self._failed else ""
            raise CommandError(
                f"{left + len(self._failed)} records were not acknowledged by the broker{why}."
                " What it acknowledged before is kept.",
                code="records_not_acknowledged",
            )

    def _acknowledged(self, error: KafkaError | None, _: Message) -> None:
        if error:
            self._failed.append(error)


def ends(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Return the offset behind the last record of each partition."""
    return _asking(bootstrap_servers, lambda consumer: _ends(consumer, topic))


def read(bootstrap_servers: str, topic: str) -> dict[int, list[Message]]:
    """Return the records that the topic holds now, by partition, in the order of their offsets."""

    def ask(consumer: Consumer) -> dict[int, list[Message]]:
        return {
            number: _records(consumer, topic, number, end)
            for number, end in _ends(consumer, topic).items()
        }

    return _asking(bootstrap_servers, ask)


def _asking(bootstrap_servers: str, ask: Callable[[Consumer], T]) -> T:
    group = {"group.id": secrets.token_hex(6), "enable.auto.commit": False}
    consumer = Consumer({**client_settings(bootstrap_servers), **group})
    try:
        return ask(consumer)
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    partitions: Iterable[int] = consumer.list_topics(topic, SECONDS).topics[topic].partitions
    return {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), SECONDS)[1]
        for number in sorted(partitions)
    }


def _records(consumer: Consumer, topic: str, number: int, end: int) -> list[Message]:
    at, _ = consumer.get_watermark_offsets(TopicPartition(topic, number), SECONDS)
    consumer.assign([TopicPartition(topic, number, at)])
    records: list[Message] = []
    while at < end:
        messages = consumer.consume(min(end - at, BATCH), SECONDS)
        errors = [error for message in messages if (error := message.error())]
        if errors or not messages:
            why = errors[0].str() if errors else f"no answer within {SECONDS:.0f} s"
            raise CommandError(
                f"{topic}, partition {number}, offset {at}, cannot be read: {why}.",
                code="topic_unreadable",
            )
        records += messages
        at = (messages[-1].offset() or 0) + 1
    return records
