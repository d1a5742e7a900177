"""The scenario with a topic: the broker is killed as well, and two dispatchers deliver.

    producer -> broker -> job run (Spark) -> outbox -> two dispatchers -> payouts serve
                killed      killed once                 one killed

The first part of the traffic is in the topic before Spark starts, and Spark reads it in a known
number of batches. So the batch that blocks the main merchant is known, and Spark is killed in it.
The rest is written while Spark reads, and the broker is killed in the middle of it.
"""

import json
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Message

from holdfast.deploy.local.demo import receiver
from holdfast.deploy.local.demo.database import Databases
from holdfast.deploy.local.demo.generator import OPENS, TrafficFile
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.live import View
from holdfast.deploy.local.demo.processes import Interrupts, Processes
from holdfast.deploy.local.demo.scenario import END_SECONDS, Scenario
from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker
from holdfast.sink.contract.exits import CommandError

FLUSH_SECONDS = 300.0
PAUSE_LINES = 20
PAUSE_SECONDS = 0.01
"""About a thousand lines a second, so that a kill of the broker meets some on their way."""


class Producer:
    """Writes lines in order, each into the partition of its merchant; a thread of its own."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, lines: Sequence[str]
    ) -> None:
        self.lines = lines
        self.written = 0
        """Lines that were handed to the client; acknowledged are all of them when `done`."""
        self._address, self._topic, self._partitions = bootstrap_servers, topic, partitions
        self._allowed = 0
        self._go = Event()
        self._ending = False
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="producer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending = True
        self._go.set()
        self._thread.join()

    def allow(self, lines: int) -> None:
        """Let it write so many lines in all."""
        self._allowed = lines
        self._go.set()

    def flushed(self) -> bool:
        """Return whether the broker has acknowledged the lines that are allowed so far.

        Raises what the producer failed with.
        """
        if self._failure:
            raise self._failure
        return self.written >= min(self._allowed, len(self.lines)) and self._pending == 0

    def done(self) -> bool:
        """Return whether the broker has acknowledged all lines; raises as `flushed`."""
        return self.flushed() and self.written == len(self.lines)

    @property
    def _pending(self) -> int:
        return self._writer.pending if self._thread.is_alive() else 0

    def _run(self) -> None:
        try:
            self._writer = topics.Writer(self._address)
            while self.written < len(self.lines) and not self._ending:
                if self.written < self._allowed:
                    self._write()
                else:
                    self._writer.poll()
                    self._go.wait(PAUSE_SECONDS)
                    self._go.clear()
            if not self._ending:
                self._writer.flush(FLUSH_SECONDS)
        except BaseException as error:  # noqa: BLE001 - raised where the run waits for it
            self._failure = error

    def _write(self) -> None:
        for line in self.lines[self.written : min(self._allowed, self.written + PAUSE_LINES)]:
            partition = topics.partition_of(line, self._partitions)
            self._writer.write(self._topic, line, partition=partition)
            self.written += 1
        Event().wait(PAUSE_SECONDS)


Offsets = dict[int, int]
"""Partition to the offset behind its last record."""


def batches_of_topic(
    checkpoint: Path, topic: str, records: Mapping[int, Sequence[Message]]
) -> list[list[str]]:
    """Return the lines of each batch that Spark has recorded; `records` is the whole topic.

    A batch of a topic ends where its planned offsets say, and a replay reads the same. So the
    expected result of a run is recomputed from the topic's records, whenever the job was killed.
    """
    lines = {
        partition: [(message.value() or b"").decode() for message in messages]
        for partition, messages in records.items()
    }
    return batches(planned_ends(checkpoint, topic), lines)


def planned_ends(checkpoint: Path, topic: str) -> list[Offsets]:
    """Return where each batch that Spark has recorded ends, from batch 0.

    Raises `CommandError` if a batch is missing: the checkpoint no longer has its first batches.
    """
    ids = sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    if ids != list(range(len(ids))):
        raise CommandError(
            f"{checkpoint} no longer has all of its batches: it keeps {ids}.", code="batch_missing"
        )
    return [_ends((checkpoint / "offsets" / str(each)).read_text(), topic) for each in ids]


def _ends(text: str, topic: str) -> Offsets:
    for line in text.splitlines():
        offsets: Any = json.loads(line) if line.startswith("{") else None
        if isinstance(offsets, dict) and isinstance(offsets.get(topic), dict):
            return {int(partition): end for partition, end in offsets[topic].items()}
    return {}


def batches(ends: Sequence[Offsets], records: Mapping[int, Sequence[str]]) -> list[list[str]]:
    """Return the lines of each batch; `records` is what the topic holds, from offset 0.

    Raises `CommandError` if a batch ends before the one before it.

    >>> batches([{0: 1}, {0: 1, 1: 2}], {0: ["a"], 1: ["b", "c"]})
    [['a'], ['b', 'c']]
    """
    read: list[list[str]] = []
    at: Offsets = {}
    for number, end in enumerate(ends):
        if any(end.get(partition, -1) < start for partition, start in at.items()):
            raise CommandError(
                f"batch {number} ends before the batch before it: {end}, {at}.",
                code="offsets_out_of_order",
            )
        read.append(
            [
                line
                for partition, stop in sorted(end.items())
                for line in records[partition][at.get(partition, 0) : stop]
            ]
        )
        at = end
    return read


TOPIC = "payments"
PARTITIONS = 3

HERO_CLOSED = OPENS.replace(hour=12, minute=16, second=40)
"""The cut of the traffic behind which the main merchant's window of 12:00 to 12:15 closes."""

BACKLOG_BATCHES = 6
"""Batches with the first part of the traffic; the one that blocks the main merchant follows."""

WRITE_SECONDS = 120.0


class TopicScenario(Scenario):
    """One run with a broker; `broker_killed` is whether its kill met it at work."""

    dispatcher_turn = 12
    beginning = "Starting Spark, which reads the topic, and two dispatchers."

    def __init__(
        self,
        layout: Layout,
        processes: Processes,
        view: View,
        interrupts: Interrupts,
        traffic: list[TrafficFile],
        broker: Broker,
    ) -> None:
        backlog = sum(len(file.lines) for file in traffic if file.closed_at <= HERO_CLOSED)
        lines = [line for file in traffic for line in file.lines]
        # Spark rounds the share of each partition down.
        self._batch_lines = ceil(backlog / BACKLOG_BATCHES) + PARTITIONS
        batches = BACKLOG_BATCHES + 1 + ceil((len(lines) - backlog) / self._batch_lines) + 1
        super().__init__(
            layout, processes, view, interrupts, batch_id=BACKLOG_BATCHES, batches=batches
        )
        self._broker = broker
        self.producer = Producer(broker.bootstrap_servers, TOPIC, PARTITIONS, lines)
        self._backlog = backlog
        self.broker_killed = False
        self._stopping = False

    def run(self, databases: Databases) -> None:
        """Run to the end; raises as `Scenario.run`."""
        with self.producer:
            self.producer.allow(self._backlog)
            receiver.await_ready(
                self.producer.flushed, self._receiver, WRITE_SECONDS, self._interrupts
            )
            self._view.say(f"The producer has written {self._backlog:,} records into the topic.")
            self._second = self._processes.start("dispatcher-2", ["dispatch"])
            super().run(databases)

    def _source(self) -> list[str]:
        return [
            *("--source", "kafka", "--topic", TOPIC),
            *("--bootstrap-servers", self._broker.bootstrap_servers),
            *("--max-offsets-per-trigger", str(self._batch_lines), "--idle-timeout", "0"),
            *("--keep-batches", "10000"),
        ]

    def _step(self) -> None:
        self._second.must_run()
        if not self.spark_kill.done:
            return
        total = len(self.producer.lines)
        middle = (self._backlog + total) // 2
        # The broker is killed while the producer writes and Spark, started again, reads.
        reads_again = (self._databases.newest_batch_id() or 0) > self._batch_id
        self.producer.allow(total if reads_again else middle)
        if not self.broker_killed and self.producer.written > middle:
            self._kill_broker()
        if self.producer.done() and not self._stopping and self._read():
            self._view.say("Spark has read the whole topic, and stops.")
            self._stopping = True
            self._spark.terminate()

    def _kill_broker(self) -> None:
        left = len(self.producer.lines) - self.producer.written
        self._broker.kill()
        self.broker_killed = left > 0
        self._view.say(
            f"Killed the broker (SIGKILL) with {left:,} records to come. Producer and Spark wait."
        )
        self._broker.start()
        self._view.say("The broker is back on its port; the producer sends again what it missed.")

    def _read(self) -> bool:
        """Return whether Spark has read the topic, and then had a batch without records."""
        ends_planned = planned_ends(self._layout.checkpoint, TOPIC)
        ends = topics.ends(self._broker.bootstrap_servers, TOPIC)
        return len(ends_planned) > 1 and ends_planned[-2] == ends_planned[-1] == ends

    def _drain(self) -> None:
        self._second.terminate()
        receiver.await_end(self._second, END_SECONDS, self._interrupts)
        super()._drain()
