"""Fixtures of a real broker. Where its jars are not staged, the tests that need one are skipped."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.sink.contract.exits import CommandError

if TYPE_CHECKING:
    from tests.support.kafka.server import KafkaServer

JARS = Path(__file__).parents[3] / ".holdfast" / "kafka"
"""Where `make kafka-jars` stages them; the tests may run in another working directory."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the staged jars, for `make test-kafka`."""
    fixtures = {"kafka", "shared_kafka", "kafka_connector"}
    for item in items:
        if fixtures.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("kafka")


def staged_or_skip(kind: str) -> Path:
    """Return the folder of staged jars, `broker` or `connector`; skips the test without them."""
    from holdfast.deploy.local.kafka.jars import staged

    try:
        return staged(kind, JARS)
    except CommandError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka_connector() -> str:
    """The jars of Spark's Kafka connector as `spark.jars` takes them."""
    return ",".join(str(jar) for jar in sorted(staged_or_skip("connector").glob("*.jar")))


@pytest.fixture(scope="session")
def _make_kafka(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], "KafkaServer"]:
    jars = staged_or_skip("broker")
    from holdfast.deploy.local.kafka.broker import Broker
    from tests.support.kafka.server import KafkaServer

    return lambda: KafkaServer(Broker(tmp_path_factory.mktemp("kafka"), jars))


@pytest.fixture
def kafka(_make_kafka: Callable[[], "KafkaServer"]) -> Iterator["KafkaServer"]:
    """A broker that the test alone uses, and may stop and kill."""
    made = _make_kafka()
    with made.broker:
        yield made


@pytest.fixture(scope="session")
def shared_kafka(_make_kafka: Callable[[], "KafkaServer"]) -> Iterator["KafkaServer"]:
    """The session's broker, which no test stops: each uses topics of its own (`make_topic`)."""
    made = _make_kafka()
    with made.broker:
        yield made
