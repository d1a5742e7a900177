"""The sink's model beside its SQL: the same steps lead to the same rows and outcomes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sink import Fenced, Written
from tests.support.servers.postgres_proxy import Fault
from tests.support.twins.pausing import Paused
from tests.support.twins.sink_database import Decision, SinkDatabase


@pytest.fixture
def database(dsn: str, tmp_path: Path) -> Iterator[SinkDatabase]:
    made = SinkDatabase(dsn, tmp_path)
    yield made
    made.close()


def test_driver_that_waits_for_its_answer_meets_another_run(database: SinkDatabase) -> None:
    """Between a lost answer and the next attempt another process acts, as in the model."""
    database.start("d1", "q1")
    block = [Decision("m_1", 1, "block")]
    assert database.write("d1", 0, block, Fault.ANSWER_LOST) == Paused("retry")
    database.checkpoint("q1").plan(0)
    assert database.start("d2", "q1") is None
    assert isinstance(database.resume("d1"), Fenced)
    database.kill("d2")
    written = database.observe()
    assert written.batches == {"payouts/q1/0": ("r1", 1, "m_1@1 block", 1, 1, 0, 0, 0, 0)}
    assert written.streams == {"payouts": ("q1", 2, "r2")}


def test_killed_driver_leaves_its_stage(database: SinkDatabase) -> None:
    database.start("d1", "q1")
    assert database.stage("d1", 0, [Decision("m_1", 1, "block")]) == Paused("staged")
    database.kill("d1")
    assert database.observe().stages == [("payouts", 1, 0)]
    database.start("d1", "q1")
    assert database.observe().stages == []
    assert database.stage("d1", 0, [Decision("m_1", 1, "block")]) == Paused("staged")
    assert isinstance(database.resume("d1"), Written)
