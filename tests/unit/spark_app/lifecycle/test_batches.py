"""Batches under way, ticks of the idle clock, and topics that come and go."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from holdfast.sink.errors import Fenced, SinkUnavailable, UnadoptedCheckpoint
from holdfast.sink.transaction.continuation import Repeated
from holdfast.spark_app.checkpoint.files import Planned
from holdfast.spark_app.checkpoint.shape import Shape
from holdfast.spark_app.command.values import timeout_milliseconds
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.broker import Broker, Partition, Range
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.kafka_faults import KafkaFault
from holdfast.spark_app.input.missing_files import FileGone
from holdfast.spark_app.input.sources import Kafka, Ticks
from holdfast.spark_app.lifecycle import attempt
from holdfast.spark_app.lifecycle.batches import Batches, Stopped
from holdfast.spark_app.lifecycle.failure import explain
from holdfast.spark_app.lifecycle.idle_clock import IdleClock
from holdfast.spark_app.lifecycle.topic_watch import TopicWatch
from holdfast.spark_app.operator.job import Job


class _Sink:
    """A sink that waits, or fails, where a real one talks to a database."""

    last = None

    def __init__(self, error: Exception | None = None) -> None:
        self.entered = Event()
        self.go_on = Event()
        self.error = error
        self.batches: list[int] = []
        self.runs: list[tuple[UUID, UUID]] = []

    def start(self, query_id: UUID, run_id: UUID, *, repeated: Repeated | None = None) -> None:  # noqa: ARG002 - as the sink
        if self.error is not None:
            raise self.error
        self.runs.append((query_id, run_id))

    def __call__(self, df: Any, batch_id: int) -> None:  # noqa: ARG002 - as foreachBatch calls it
        self.entered.set()
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        self.batches.append(batch_id)


def test_closing_waits_for_the_running_batch_and_refuses_the_next() -> None:
    sink = _Sink()
    batches = Batches(sink)
    batches.begin(uuid4(), uuid4())
    closed = Event()
    running = Thread(target=batches, args=(None, 7))
    running.start()
    assert sink.entered.wait(30)
    closing = Thread(target=lambda: (batches.close(), closed.set()))
    closing.start()
    assert not closed.is_set()
    sink.go_on.set()
    assert closed.wait(30)
    running.join()
    closing.join()
    with pytest.raises(Stopped):
        batches(None, 8)  # type: ignore[arg-type] # no DataFrame is looked at
    assert sink.batches == [7]
    assert batches.close() == 7
    assert batches.failure is None


def test_error_of_a_batch_is_kept_unchanged() -> None:
    sink = _Sink()
    sink.go_on.set()
    batches = Batches(sink)
    batches.begin(uuid4(), uuid4())
    sink.error = Fenced("a newer run owns the stream")
    with pytest.raises(Fenced):
        batches(None, 0)  # type: ignore[arg-type] # no DataFrame is looked at
    assert batches.failure is sink.error


def test_a_batch_that_comes_before_its_run_began_waits_for_it() -> None:
    sink = _Sink()
    sink.go_on.set()
    batches = Batches(sink)
    with ThreadPoolExecutor(1) as spark:
        early = spark.submit(batches, None, 0)  # type: ignore[arg-type] # no DataFrame is looked at
        assert not sink.entered.is_set()
        batches.begin(query_id := uuid4(), run_id := uuid4())
        early.result(30)
    assert sink.runs == [(query_id, run_id)]
    assert sink.batches == [0]


def test_a_batch_of_a_run_that_could_not_begin_is_turned_away() -> None:
    sink = _Sink(UnadoptedCheckpoint("not this one"))
    batches = Batches(sink)
    with ThreadPoolExecutor(1) as spark:
        early = spark.submit(batches, None, 0)  # type: ignore[arg-type] # no DataFrame is looked at
        with pytest.raises(UnadoptedCheckpoint):
            batches.begin(uuid4(), uuid4())
        with pytest.raises(Stopped):
            early.result(30)
    assert batches.failure is sink.error
    assert not sink.entered.is_set()


def test_error_is_reported_in_one_line_by_name() -> None:
    message = explain(SinkUnavailable("nobody answers. Nothing was written"))
    assert message == "SinkUnavailable: nobody answers. Nothing was written"
    reply = explain(RuntimeError("first\nsecond postgresql://me:secret@host/db"))
    assert reply.startswith("RuntimeError: first second postgresql://me:***@host/db. ")
    assert "\n" not in reply


def test_forbidden_batch_does_not_reach_the_sink() -> None:
    sink = _Sink()
    sink.go_on.set()
    batches = Batches(sink)
    gone = FileGone("a file is gone")

    def require(batch_id: int) -> None:
        if batch_id == 1:
            raise gone

    batches.begin(uuid4(), uuid4(), require)
    batches(None, 0)  # type: ignore[arg-type] # no DataFrame is looked at
    with pytest.raises(FileGone):
        batches(None, 1)  # type: ignore[arg-type] # no DataFrame is looked at
    assert sink.batches == [0]
    assert batches.failure is gone


def test_new_stream_is_claimed_by_its_first_batch() -> None:
    sink = _Sink()
    sink.go_on.set()
    batches = Batches(sink)
    batches.begin(uuid4(), uuid4(), take=False)
    assert sink.runs == []
    batches(None, 0)  # type: ignore[arg-type] # no DataFrame is looked at
    assert sink.batches == [0]


def test_stream_is_taken_before_the_checkpoint_is_read_to_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then another driver may change it; a start that does not fit fences nobody."""
    steps: list[str] = []

    def step(name: str, result: object) -> None:
        monkeypatch.setattr(attempt, name, lambda *_: (steps.append(name), result)[1])

    step("require_fit", None)
    step("take", True)
    step("claim", "the job of the checkpoint")
    step("require_ledger", None)
    unused: Any = None
    assert attempt._claimed(unused, unused, unused, None) == ("the job of the checkpoint", True)
    assert steps == ["require_fit", "take", "claim", "require_ledger"]


WAITS = {"isDataAvailable": False, "message": "Waiting for next trigger"}


def _query(**status: Any) -> Any:
    return SimpleNamespace(status=status)


class Watched:
    """An idle clock of ten seconds; `ticks` are the moments at which it wrote one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ticks: list[float] = []
        self.clock = IdleClock(10, lambda _: self.ticks.append(self.now), lambda: self.now)

    def at(self, now: float, rows: int = 0, **status: Any) -> "Watched":
        self.now = now
        self.clock.ask(_query(**WAITS | status))
        self.clock.observe(rows)
        return self


def test_a_silent_source_gets_one_tick_in_each_timeout() -> None:
    watched = Watched()
    for now in range(35):
        watched.at(now)
    assert watched.ticks == [10, 20, 30]


def test_waiting_rows_and_data_restart_the_timeout() -> None:
    watched = Watched().at(9, rows=1).at(18).at(18.5, isDataAvailable=True).at(28)
    assert watched.ticks == []
    assert watched.at(28.5).ticks == [28.5]


@pytest.mark.parametrize(
    "message", ["Initializing sources", "Getting offsets from FileStreamSource[file:/events]"]
)
def test_unqueried_source_is_not_treated_as_silent(message: str) -> None:
    watched = Watched().at(11, message=message).at(99, message=message)
    assert watched.ticks == []
    assert watched.at(100).ticks == [100]


def test_unwritable_tick_is_an_error_and_is_retried() -> None:
    clock = IdleClock(0, lambda asked_ms: asked_ms / 0)
    clock.ask(_query(**WAITS))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            clock.observe(0)


def test_timeout_below_twice_the_trigger_interval_is_refused() -> None:
    assert timeout_milliseconds("0", 1000) == 0
    assert timeout_milliseconds("0s", 1000) == 0
    assert timeout_milliseconds("60s", 1000) == 60_000
    with pytest.raises(ValueError, match="less than two times the --trigger-interval"):
        timeout_milliseconds("1999ms", 1000)


POLICY = Policy.parse('version = "v1"\n[[default]]\nlimit_minor = 100\nrelease_level_minor = 100\n')
PAY = Kafka("pay.*", is_pattern=True, cluster_id="c1", topic_ids=(("pay", "id1"),))
JOB = Job((), Format.JSON, "/checkpoint", "payouts", POLICY, sources=(PAY, Ticks()))


class _World:
    """A checkpoint and a cluster."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = json.loads(Shape.of(JOB).to_json("file:/checkpoint"))
        self.ids = {"pay": "id1"}
        self.stable = self.end = 7
        self.planned: Planned | None = Planned(3, 0, ('{"pay":{"0":7}}', "-"))
        self.writes = 0
        watch = TopicWatch.__new__(TopicWatch)
        watch._files = cast("Any", self)
        watch._sources = list(JOB.sources)
        watch._broker = cast(
            "Broker",
            SimpleNamespace(
                topic_ids=lambda _: dict(self.ids),
                ranges=lambda _: {Partition("pay", 0): Range(0, self.stable)},
                written=lambda _: {Partition("pay", 0): self.end},
            ),
        )
        self.watch = watch
        world = self
        watch._files = cast(
            "Any",
            SimpleNamespace(
                location="file:/checkpoint",
                read_json=lambda *_: world.kept,
                write=world._write,
                planned=lambda: world.planned,
            ),
        )

    def _write(self, _name: str, text: str) -> None:
        self.kept = json.loads(text)
        self.writes += 1


def test_recreated_topic_is_refused_before_and_after_the_read() -> None:
    world = _World()
    world.watch.require(0)
    world.watch.require_same()
    world.ids["pay"] = "id2"
    for check in (lambda: world.watch.require(1), world.watch.require_same):
        with pytest.raises(KafkaFault, match="made again under its name") as raised:
            check()
        assert raised.value.moved
    assert world.writes == 0


def test_new_topic_of_a_pattern_is_recorded_once_before_its_records() -> None:
    world = _World()
    world.ids["pay2"] = "id9"
    world.watch.require(0)
    world.watch.require(1)
    assert world.writes == 1
    assert world.kept["sources"][0]["topic_ids"] == {"pay": "id1", "pay2": "id9"}
    world.ids["pay2"] = "id10"
    with pytest.raises(KafkaFault, match="pay2"):
        world.watch.require_same()


def test_topic_is_silent_only_if_every_record_is_planned() -> None:
    world = _World()
    assert world.watch.is_read()
    world.stable = world.end = 8
    assert not world.watch.is_read()
    world.planned = None
    assert not world.watch.is_read()
    world.planned = replace_lines(world, "-")
    assert not world.watch.is_read()


def replace_lines(world: _World, line: str) -> Planned:
    assert world.planned is None
    return Planned(3, 0, (line, "-"))


def test_a_source_of_another_kind_is_not_asked_for() -> None:
    world = _World()
    world.watch._sources = [Ticks()]
    world.ids.clear()
    world.watch.require(0)
    assert world.watch.is_read()
    assert replace(PAY).with_topics({}) == PAY


def test_a_topic_with_an_open_transaction_is_not_silent() -> None:
    world = _World()
    world.end = 9
    assert not world.watch.is_read()
