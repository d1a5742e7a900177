"""The scenario with a topic: the broker is killed as well, and two dispatchers deliver.

    producer -> broker -> job run (Spark) -> outbox -> two dispatchers -> payouts serve
                killed      killed once                 one killed

The first part of the traffic is in the topic before Spark starts, and Spark reads it in a known
number of batches. So the batch that blocks the main merchant is known, and Spark is killed in it.
The rest is written while Spark reads, and the broker is killed in the middle of it.
"""

from math import ceil

from holdfast.deploy.local.demo import receiver, topic_batches
from holdfast.deploy.local.demo.database import Databases
from holdfast.deploy.local.demo.generator import OPENS, TrafficFile
from holdfast.deploy.local.demo.interrupts import Interrupts
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.live import View
from holdfast.deploy.local.demo.processes import Processes
from holdfast.deploy.local.demo.producer import Producer
from holdfast.deploy.local.demo.scenario import END_SECONDS, Scenario
from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker

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
        planned = topic_batches.planned(self._layout.checkpoint, TOPIC)
        ends = topics.ends(self._broker.bootstrap_servers, TOPIC)
        return len(planned) > 1 and planned[-2] == planned[-1] == ends

    def _drain(self) -> None:
        self._second.terminate()
        receiver.await_end(self._second, END_SECONDS, self._interrupts)
        super()._drain()
