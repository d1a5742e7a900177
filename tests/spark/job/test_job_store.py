"""A start of the job whose checkpoint is on S3, with credentials that the store refuses."""

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import pytest
from tenacity import wait_none

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.lifecycle.failure import Failure
from holdfast.spark_app.lifecycle.supervisor import supervise
from holdfast.spark_app.runtime.launch import STORE_LIMITS
from tests.support.job.jobs import Play, event
from tests.support.servers.places import hadoop_settings, in_session
from tests.support.servers.s3 import S3, s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def store() -> Iterator[S3]:
    with s3() as server:
        yield server


@pytest.fixture
def on_store(store: S3, spark: "SparkSession", play: Play) -> Iterator[Play]:
    """The stream, with its checkpoint in a bucket."""
    play.put([event("e1", "12:01", 1)])
    with hadoop_settings(spark, STORE_LIMITS), in_session(store, spark) as bucket:
        yield replace(play, options={"checkpoint": f"{bucket}/checkpoint"})
        store.be("")


def _start(play: Play) -> tuple[str, list[Failure]]:
    """Start the job as the command does; returns why it ended, and what it tried again."""
    restarts: list[Failure] = []
    with play.attempt() as run, pytest.raises(CommandError) as raised:
        supervise(run, stop=Event(), pause=wait_none(), on_restart=restarts.append)
    return str(raised.value), restarts


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("expired", "the credentials for the object store have expired or are invalid (400)"),
        ("wrong", "the object store refuses the credentials, what they permit, or the clock"),
        ("skewed", "the object store refuses the credentials, what they permit, or the clock"),
    ],
)
def test_start_with_refused_credentials_ends_at_once(
    on_store: Play, store: S3, mode: str, said: str
) -> None:
    store.be(mode)
    message, restarts = _start(on_store)
    assert restarts == []
    assert message.startswith(said), message
    assert "Nothing is lost" in message


def test_start_without_credentials_ends_at_once(
    on_store: Play, store: S3, spark: "SparkSession"
) -> None:
    store.make_bucket("another")  # its client is made with the settings of now
    with hadoop_settings(spark, {"fs.s3a.access.key": "", "fs.s3a.secret.key": ""}):
        message, restarts = _start(replace(on_store, options={"checkpoint": "s3a://another/here"}))
    assert restarts == []
    assert message.startswith("there are no credentials for the object store"), message


@pytest.mark.long
def test_start_at_a_store_that_is_overloaded_is_tried_again(on_store: Play, store: S3) -> None:
    store.answer_503(on=True)
    restarts: list[Failure] = []

    def recover(failure: Failure) -> None:
        restarts.append(failure)
        store.answer_503(on=False)

    on_store.supervised(on_restart=recover)
    assert [each.said.partition(" (")[0] for each in restarts] == [
        "the object store is overloaded or away"
    ]
