"""The example of an own job in the tests' Spark session: what it decides, once."""

from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest

from holdfast.sink import OutboxSink
from tests.support.job import order_review
from tests.support.job.jobs import forget_commit
from tests.support.job.order_review import CHANGED, EXAMPLE, Expected
from tests.support.world import World


@pytest.fixture(scope="module")
def job() -> ModuleType:
    """The module of the example, which is no part of a package."""
    spec = spec_from_file_location("order_review_job", EXAMPLE / "job.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_job_decides_what_its_events_say(spark: Any, job: ModuleType, world: World) -> None:
    files, expected = order_review.events(3), Expected()
    order_review.write(world.tmp_path / "events", dict(enumerate(files)))
    for rows in files:
        expected.add(rows, CHANGED)
    checkpoint = world.tmp_path / "checkpoint"
    for _ in range(2):
        sink = OutboxSink(world.dsn, checkpoint=checkpoint, **job.SINK)
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        decided = job.decisions(job.events(reader, str(world.tmp_path / "events")), CHANGED)
        writer = decided.writeStream.option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).foreachBatch(sink).start().awaitTermination()
        sink.close()
        assert order_review.decided(world.dsn) == expected.orders
        assert order_review.counts(world.dsn) == (*expected.counts, 3)
        forget_commit(checkpoint, 2)
