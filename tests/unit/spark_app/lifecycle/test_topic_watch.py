"""The topics of a running job: another one under the same name is noticed before it is read."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.spark_app.checkpoint.files import Planned
from holdfast.spark_app.checkpoint.shape import Shape
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.broker import Broker, Partition, Range
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.kafka_faults import KafkaFault
from holdfast.spark_app.input.sources import Kafka, Ticks
from holdfast.spark_app.lifecycle.topic_watch import TopicWatch
from holdfast.spark_app.operator.job import Job

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
