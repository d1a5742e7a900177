"""Broker, job, dispatchers and Postgres under random kills: `python -m tests.soak.kafka SEED`.

    producer -> broker -> job run -> outbox -> two dispatchers -> payouts serve

Each part is a process. While a producer writes two hours of traffic into a topic of three
partitions, a plan drawn from the seed ends one part after the other by SIGKILL, in the middle of
its work, and starts it again. Then the rest is read and delivered. What the payouts service applied
is compared with a recomputation from the topic's records, in the batches that Spark planned, by
code that shares nothing with the job; and `holdfast check` compares outbox, attempts and the
service's inbox.

`make kills-kafka` plays KAFKA_SEEDS (ten by default). Postgres is that of the rounds, with both
databases in it; where HOLDFAST_TEST_DSN names another one, it is not killed. With `--cluster` the
job runs on a Spark master with two workers, and executors, workers and the master die as well.
What a round left that went wrong stays in .holdfast/soak.
"""

import argparse
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from holdfast.deploy.local.demo import database, generator, receiver, topic_scenario
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.processes import Child, Interrupted, Interrupts, Processes
from holdfast.deploy.local.demo.recompute import (
    Action,
    Recomputed,
    audit,
    expected,
    recompute_batches,
)
from holdfast.deploy.local.demo.report import applied_action
from holdfast.deploy.local.demo.topic_scenario import Producer
from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker, client_settings
from holdfast.deploy.local.kafka.jars import STAGED, staged
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.sink.contract.exits import CommandError
from tests.support.cluster.standalone import Standalone, options, standalone
from tests.support.job.jobs import newest

FOLDER = Path(".holdfast/soak")
TOPIC = "payments"
PARTITIONS = 3
EVENTS = 4000
DSN = "HOLDFAST_TEST_DSN"

END_SECONDS = 600.0
"""How long the rest may take after the last kill, on a busy machine."""

BATCH_SECONDS = 600.0
"""How long a kill waits for the next batch, which may need another start of Spark."""

LOCAL = ("broker", "driver", "jvm", "python", "dispatcher")
CLUSTER = ("executor", "worker", "master")


def plan(seed: int, kills: int, kinds: Sequence[str]) -> list[str]:
    """Return whom the seed kills, one after the other: of each kind one before any comes again."""
    draw = random.Random(seed)  # noqa: S311 - a plan, not a secret
    victims: list[str] = []
    while len(victims) < kills:
        victims += draw.sample(kinds, min(len(kinds), kills - len(victims)))
    return victims


@dataclass
class Round:
    """The processes of one seed, and what happened to them."""

    layout: Layout
    processes: Processes
    interrupts: Interrupts
    broker: Broker
    draw: random.Random
    postgres: EmbeddedPostgres | None
    """None where HOLDFAST_TEST_DSN names another server, which is not killed."""
    cluster: Standalone | None
    began: float
    """`time.monotonic()`."""
    killed: list[str] = field(default_factory=list)
    restarts: Counter[str] = field(default_factory=Counter)
    _children: dict[str, Child] = field(default_factory=dict)

    def keep_running(self) -> None:
        """Start what has ended: what was killed, or ended because another part was."""
        for name in ("job", "dispatcher-1", "dispatcher-2"):
            child = self._children.get(name)
            if child is not None and child.exit_code is None:
                continue
            if child is not None:
                self.restarts[name] += 1
            words = self._job() if name == "job" else ["dispatch"]
            self._children[name] = self.processes.start(name, words)

    def _job(self) -> list[str]:
        layout = self.layout
        return [
            *("job", "run", "--source", "kafka", "--topic", TOPIC),
            *("--bootstrap-servers", self.broker.bootstrap_servers),
            *("--max-offsets-per-trigger", "400", "--idle-timeout", "0"),
            *("--checkpoint", str(layout.checkpoint), "--policy", str(layout.policy)),
            *("--stream", "exposure", "--key-groups", "4", "--trigger-interval", "200ms"),
            *("--keep-batches", "10000"),
            *(options(self.cluster) if self.cluster else ()),
        ]

    def attack(self, victims: Sequence[str], producer: Producer) -> None:
        """Kill one after the other, each after another part of the traffic."""
        for number, victim in enumerate(victims, start=1):
            producer.allow(len(producer.lines) * number // (len(victims) + 1))
            before = newest(self.layout.checkpoint)
            self.until(lambda b=before: newest(self.layout.checkpoint) > b, BATCH_SECONDS)
            self.rest(self.draw.uniform(0.0, 1.5))
            if self.kill(victim):
                self.killed.append(victim)
                self.say(f"killed {victim} after batch {newest(self.layout.checkpoint)}")

    def say(self, what: str) -> None:
        """Say what was done, and when."""
        print(f"  {time.monotonic() - self.began:4.0f} s: {what}", flush=True)

    def kill(self, victim: str) -> bool:
        """Kill a part, and start it again where nothing else does; False if there is none."""
        if victim == "broker":
            self.broker.kill()
            self.rest(self.draw.uniform(0.0, 3.0))
            self.broker.start()
            return True
        if victim == "postgres":
            return self._kill_postgres()
        if victim in CLUSTER:
            return self._kill_in_cluster(victim)
        if victim == "dispatcher":
            self._children[self.draw.choice(("dispatcher-1", "dispatcher-2"))].process.kill()
            return True
        if victim == "driver":
            # Its JVM may outlive it for a moment, beside the driver that follows.
            self._children["job"].process.kill()
            self._children["job"].process.wait()
            return True
        victims = list(self._victims(victim))
        if not victims:
            return False
        with suppress(psutil.NoSuchProcess):
            self.draw.choice(victims).kill()
        return True

    def _kill_postgres(self) -> bool:
        assert self.postgres
        running = self.postgres.running
        if running:
            # Its backends end when they see that it is gone.
            running.process.kill()
            self.rest(self.draw.uniform(0.0, 3.0))
            self.postgres.start()
        return running is not None

    def _kill_in_cluster(self, victim: str) -> bool:
        assert self.cluster
        number = self.draw.randrange(2)
        if victim == "executor":
            running = self.cluster.executors()
            if not running:
                return False
            with suppress(psutil.NoSuchProcess):
                running[number % len(running)].kill()
            return True
        if victim == "worker":
            self.cluster.kill_worker(number)
            self.rest(self.draw.uniform(0.0, 3.0))
            self.cluster.restart_worker(number)
        else:
            self.cluster.kill_master()
            self.rest(self.draw.uniform(0.0, 3.0))
            self.cluster.restart_master()
        return True

    def _victims(self, victim: str) -> Iterator[psutil.Process]:
        """Yield the processes of the job that are Spark's JVM, or Python workers of its tasks."""
        roots = [psutil.Process(self._children["job"].process.pid)]
        if victim == "python" and self.cluster:
            roots = self.cluster.executors()
        processes = {each for root in roots for each in root.children(recursive=True)}
        for process in sorted(processes, key=lambda each: each.pid):
            with suppress(psutil.NoSuchProcess):
                words = " ".join(process.cmdline())
                if victim == "jvm" and "SparkSubmit" in words:
                    yield process
                if victim == "python" and "pyspark.daemon" in words and process.parent():
                    yield process

    def rest(self, seconds: float) -> None:
        """Let time pass, in which what ends is started again."""
        deadline = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= deadline, seconds + 60)

    def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition, and keep everything running meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.keep_running()
            if time.monotonic() > deadline:
                raise self._children["job"].failure(f"did not come on within {seconds:.0f} s")
            self.interrupts.pause(0.05)

    def finish(self) -> None:
        """Wait until the topic is read and time has advanced; stop the job, deliver the rest."""
        ends = topics.ends(self.broker.bootstrap_servers, TOPIC)

        def read() -> bool:
            planned = topic_scenario.planned_ends(self.layout.checkpoint, TOPIC)
            # The last batch has no records: it closes what the one before it made due.
            return len(planned) > 1 and planned[-2] == planned[-1] == ends

        self.until(read, END_SECONDS)
        self.say("the topic is read")
        for name in ("job", "dispatcher-1", "dispatcher-2"):
            self._children[name].terminate()
            receiver.await_end(self._children[name], 60, self.interrupts)
        last = self.processes.start("dispatcher-last", ["dispatch", "--drain"])
        receiver.await_end(last, 120, self.interrupts)

    def check(self, payouts_dsn: str) -> None:
        """Fail if outbox, attempts and the receiver's inbox disagree."""
        words = ["check", "--receiver", "env:HOLDFAST_SECRET_INBOX"]
        checking = self.processes.start("check", words, {"HOLDFAST_SECRET_INBOX": payouts_dsn})
        receiver.await_end(checking, 60, self.interrupts)

    def recomputed(self) -> Recomputed:
        """Recompute the topic's records, batch by batch."""
        records = topics.read(self.broker.bootstrap_servers, TOPIC)
        lines = topic_scenario.batches_of_topic(self.layout.checkpoint, TOPIC, records)
        return recompute_batches(lines, self.layout.policy, round(time.time() * 1_000_000))


class Options(argparse.Namespace):
    """What the command line asks for."""

    seeds: list[int]
    kills: int | None
    events: int
    cluster: bool


@dataclass(frozen=True)
class Result:
    """What a round showed."""

    said: str
    kept: bool


def play(seed: int, postgres: EmbeddedPostgres | None, folder: Path, options: Options) -> Result:
    """Play the round of a seed."""
    began = time.monotonic()
    server = postgres.dsn if postgres else os.environ[DSN]
    kinds = [*LOCAL, *(["postgres"] if postgres else []), *(CLUSTER if options.cluster else [])]
    layout = Layout(folder)
    layout.claim()
    layout.clear()
    layout.make_secret()
    layout.policy.write_text(generator.policy_toml(), encoding="utf-8")
    lines = [line for file in generator.traffic(seed, options.events) for line in file.lines]
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        shutil.rmtree(folder / "broker", ignore_errors=True)
        broker = stack.enter_context(Broker(folder / "broker"))
        topics.make(AdminClient(client_settings(broker.bootstrap_servers)), TOPIC, PARTITIONS)
        holdfast_dsn, payouts_dsn = database.prepare(server)
        environment = {
            **spark_environment(),
            "HOLDFAST_DSN": holdfast_dsn,
            "HOLDFAST_KAFKA_JARS": str(staged("connector").absolute()),
            "HOLDFAST_ALLOW_SECRET_DIR": str(layout.secrets),
            "HOLDFAST_SPARK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYTHONUNBUFFERED": "1",
        }
        spark = stack.enter_context(standalone(folder / "spark")) if options.cluster else None
        processes = stack.enter_context(Processes(layout.logs, environment))
        receiver.start(processes, layout, payouts_dsn, interrupts)
        draw = random.Random(seed)  # noqa: S311 - times of kills, not secrets
        played = Round(layout, processes, interrupts, broker, draw, postgres, spark, began)
        victims = plan(seed, options.kills or len(kinds), kinds)
        producer = Producer(broker.bootstrap_servers, TOPIC, PARTITIONS, lines)
        stack.enter_context(producer)
        played.attack(victims, producer)
        producer.allow(len(lines))
        played.until(producer.done, END_SECONDS)
        played.finish()
        played.check(payouts_dsn)
        with database.reading(holdfast_dsn, payouts_dsn) as databases:
            applied = databases.receiver_actions()
            numbers = databases.progress()
        return _judged(seed, played, len(lines), applied, numbers)


def _judged(
    seed: int, played: Round, lines: int, applied: Sequence[database.Row], numbers: database.Row
) -> Result:
    recomputed = played.recomputed()
    actions: list[Action] = [applied_action(row) for row in applied]
    verdict = audit(expected(recomputed.decisions), actions)
    quarantined = numbers["quarantined"] == recomputed.unusable
    kills = ", ".join(f"{name} {count}" for name, count in sorted(Counter(played.killed).items()))
    text = (
        f"seed {seed}: {len(played.killed)} kills ({kills}); {recomputed.lines} records of"
        f" {lines} lines, {len(recomputed.batches)} batches, {verdict.applied} of"
        f" {len(recomputed.decisions)} actions; {verdict.lost} lost, {verdict.repeated} repeated,"
        f" {verdict.out_of_order} out of order, {verdict.altered} altered;"
        f" {numbers['unknown_outcomes']} unknown outcomes,"
        f" {time.monotonic() - played.began:.0f} s"
    )
    complete = recomputed.lines == lines and len(recomputed.decisions) > 0
    return Result(text, verdict.kept and quarantined and complete)


def main(arguments: Sequence[str]) -> int:
    """Play each seed; returns 0 if nothing was lost, repeated, altered or out of order."""
    parser = argparse.ArgumentParser(prog="tests.soak.kafka")
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--kills", type=int, help="one of each kind by default")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args(arguments, namespace=Options())
    staged("broker", STAGED)
    wrong = 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    # Rounds with other seeds may run beside these, and each kills its own server.
    data = FOLDER.resolve() / f"kafka-postgres-{options.seeds[0]}"
    own = None if DSN in os.environ else EmbeddedPostgres(data, keep=False)
    with own or nullcontext():
        for seed in options.seeds:
            folder = (FOLDER / f"kafka-{seed}").resolve()
            shutil.rmtree(folder, ignore_errors=True)
            try:
                result = play(seed, own, folder, options)
            except (CommandError, Interrupted) as error:
                print(f"seed {seed}: {error}; see {folder}", flush=True)
                return 1
            print(result.said, flush=True)
            if result.kept:
                shutil.rmtree(folder)
            else:
                wrong += 1
                print(f"seed {seed}: the guarantee was not met; see {folder}", flush=True)
    print(f"{len(options.seeds)} seeds, {wrong} of them went wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
