"""The scenario: start all processes, kill both halves, drain.

    event files -> job run (Spark) -> outbox -> dispatch -> payouts serve
                     killed once                 killed once

Each box is a separate process, started with the `holdfast` command; this process only watches.
"""

import time

from holdfast.deploy.local.demo import receiver, story
from holdfast.deploy.local.demo.database import Databases
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.live import Progress, View
from holdfast.deploy.local.demo.processes import (
    Child,
    Interrupts,
    Kill,
    Processes,
    spark_has_recorded,
)
from holdfast.deploy.local.demo.story import sentence

STREAM = "exposure"
POLL_SECONDS = 0.1
PROGRESS_SECONDS = 0.5
END_SECONDS = 60.0
RUN_SECONDS = 600.0
"""The limit after which a run counts as hung; it usually takes a little over a minute."""


class Scenario:
    """One run, on prepared databases and files."""

    dispatcher_turn = 25
    """The delivery at which the dispatcher is killed, during an early wave of decisions."""

    beginning = "Starting Spark and the dispatcher. Each file is one micro-batch."

    def __init__(
        self,
        layout: Layout,
        processes: Processes,
        view: View,
        interrupts: Interrupts,
        *,
        batch_id: int,
        batches: int,
    ) -> None:
        """`batch_id` is the batch in which Spark is killed, `batches` about how many there are."""
        self._layout = layout
        self._processes = processes
        self._view = view
        self._interrupts = interrupts
        self._batches = batches
        self._batch_id = batch_id
        # S9: the sink's transaction is committed, and foreachBatch is about to return to Spark.
        self.spark_kill = Kill("S9", self._batch_id + 1, layout.flags / "spark")
        # D10: the payouts service has answered, and the result is not stored yet.
        self.dispatcher_kill = Kill("D10", self.dispatcher_turn, layout.flags / "dispatcher")
        self._merchants_told = 0

    def start_receiver(self, payouts_dsn: str) -> None:
        """Start the payouts service, which creates its tables, and add it as an endpoint."""
        self._receiver, url = receiver.start(
            self._processes, self._layout, payouts_dsn, self._interrupts
        )
        self._view.say(f"The payouts service lists held merchants on {url}")

    def run(self, databases: Databases) -> None:
        """Run to the end; raises `Failed` if a process fails, `Interrupted` on a signal."""
        self._databases = databases
        self._dispatcher = self._start_dispatcher(self.dispatcher_kill.environment)
        self._spark = self._start_spark(self.spark_kill.environment)
        self._view.say(self.beginning)
        self._watch()
        self._drain()

    def _start_dispatcher(self, environment: dict[str, str], *options: str) -> Child:
        return self._processes.start("dispatcher", ["dispatch", *options], environment)

    def _start_spark(self, environment: dict[str, str]) -> Child:
        layout = self._layout
        return self._processes.start(
            "spark",
            [
                *("job", "run", *self._source(), "--checkpoint", str(layout.checkpoint)),
                *("--policy", str(layout.policy), "--stream", STREAM, "--key-groups", "4"),
            ],
            environment,
        )

    def _source(self) -> list[str]:
        """Return the options of the job that say where events come from."""
        path = str(self._layout.events)
        files = ["--source", "files", "--format", "json", "--path", path]
        return [*files, "--available-now", "--max-files-per-trigger", "1"]

    def _step(self) -> None:
        """Do what else is due; called every `POLL_SECONDS`."""

    def _watch(self) -> None:
        """Watch until Spark has finished and both kills are done or no longer possible."""
        deadline = time.monotonic() + RUN_SECONDS
        shown = 0.0
        while True:
            self._interrupts.pause(POLL_SECONDS)
            self._step()
            if self.spark_kill.due:
                self._kill_spark()
            if self.dispatcher_kill.due:
                self._kill_dispatcher()
            self._receiver.must_run()
            self._dispatcher.must_run()
            if self._spark.exit_code != 0:
                self._spark.must_run()
            if time.monotonic() >= shown + PROGRESS_SECONDS:
                shown = time.monotonic()
                progress = self._show()
                all_delivered = progress.delivered >= progress.entries
                if self._spark.exit_code == 0 and (self.dispatcher_kill.done or all_delivered):
                    return
            if time.monotonic() > deadline:
                raise self._spark.failure(f"did not finish within {RUN_SECONDS:.0f} s")

    def _kill_spark(self) -> None:
        newest = self._databases.newest_batch_id()
        recorded = spark_has_recorded(self._layout.checkpoint, self._batch_id)
        self._spark.kill()
        self.spark_kill.done = True
        self.spark_kill.proved = newest == self._batch_id and not recorded
        self._view.say(
            f"Killed Spark and its JVM (SIGKILL) in batch {self._batch_id}, which blocks"
            f" {story.HERO}: committed in Postgres, but not in Spark's checkpoint."
        )
        self._spark = self._start_spark({})
        self._view.say("Spark restarts from its checkpoint and replays that batch.")

    def _kill_dispatcher(self) -> None:
        applied = self._databases.receiver_counts()["applied"]
        settled = self._databases.progress()["delivered"]
        self._dispatcher.kill()
        self.dispatcher_kill.done = True
        self.dispatcher_kill.proved = applied > settled
        self._view.say(
            f"Killed the dispatcher (SIGKILL): the payouts service has applied {applied} actions,"
            f" but only {settled} deliveries are settled."
        )
        self._dispatcher = self._start_dispatcher({})
        self._view.say(
            "A new dispatcher starts. The other outcomes are unknown, so after the old lease"
            " expires it retries them with the same keys."
        )

    def _drain(self) -> None:
        """Stop the dispatcher as an operator does, and run another one until nothing is due."""
        self._view.say("Spark has read all files. Delivering the remaining entries.")
        self._dispatcher.terminate()
        receiver.await_end(self._dispatcher, END_SECONDS, self._interrupts)
        self._dispatcher = self._start_dispatcher({}, "--drain")
        receiver.await_end(self._dispatcher, END_SECONDS, self._interrupts)
        self._show()

    def _show(self) -> Progress:
        happened = self._databases.receiver_merchants([story.HERO, story.SILENT])
        for row in happened[self._merchants_told :]:
            self._view.say(sentence(row))
        self._merchants_told = len(happened)
        numbers = self._databases.progress()
        progress = Progress(
            batches=numbers["batches"],
            batches_in_all=self._batches,
            entries=numbers["entries"],
            delivered=numbers["delivered"],
            held=self._databases.receiver_counts()["held"],
            spark_kills=int(self.spark_kill.done),
            dispatcher_kills=int(self.dispatcher_kill.done),
        )
        self._view.show(progress)
        return progress
