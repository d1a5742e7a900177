"""The sink's model beside its SQL: the same steps lead to the same rows and outcomes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sink import Fenced, Written
from tests.support.servers.postgres_proxy import Fault
from tests.support.twins.pausing import Paused
from tests.support.twins.search import Effort, search
from tests.support.twins.sink_database import SinkDatabase
from tests.support.twins.sink_machine import SinkMachine
from tests.support.twins.sink_rows import Decision

BLOCK = [Decision("m_1", 1, "block")]


@pytest.fixture
def database(dsn: str, tmp_path: Path) -> Iterator[SinkDatabase]:
    made = SinkDatabase(dsn, tmp_path)
    yield made
    made.close()


def _start(database: SinkDatabase, driver: str) -> object:
    database.start(driver, "c1")
    return database.begin_run(driver)


def test_driver_that_waits_for_its_answer_meets_another_run(database: SinkDatabase) -> None:
    """Between a lost answer and the next attempt another process acts, as in the model."""
    _start(database, "a")
    assert database.write("a", 0, BLOCK, Fault.ANSWER_LOST) == Paused("retry")
    database.checkpoint("c1").plan(0)
    assert _start(database, "b") is None
    assert isinstance(database.retry("a"), Fenced)
    database.kill("b")
    written = database.observe()
    assert written.batches == {"c1/0": ("r1", 1, "m_1@1 block", 1, 1, 0, 0, 0, 0)}
    assert written.streams == {"payouts": ("c1", 2, "r2")}


def test_killed_driver_leaves_its_stage(database: SinkDatabase) -> None:
    _start(database, "a")
    assert database.stage("a", 0, BLOCK) == Paused("staged")
    database.kill("a")
    assert database.observe().stages == [(1, 0)]
    _start(database, "a")
    assert database.observe().stages == []
    assert database.stage("a", 0, BLOCK) == Paused("staged")
    assert isinstance(database.take_over("a"), Written)


@pytest.mark.rest
def test_tables_and_outcomes_are_those_of_the_model(database: SinkDatabase) -> None:
    class Machine(SinkMachine):
        pass

    Machine.database, Machine.effort = database, Effort()
    search(Machine, Machine.effort)
    print(Machine.effort)  # noqa: T201
