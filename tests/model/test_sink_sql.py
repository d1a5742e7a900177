"""The sink's model beside its SQL: the same steps lead to the same rows and outcomes."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from holdfast.sink import Fenced, Written
from tests.support import models
from tests.support.servers.databases import copy_of
from tests.support.servers.postgres_proxy import Fault
from tests.support.twins.pausing import Paused
from tests.support.twins.search import Effort, search
from tests.support.twins.sink_database import SinkDatabase
from tests.support.twins.sink_machine import SinkMachine
from tests.support.twins.sink_rows import FAR, Decision

BLOCK = [Decision("m_1", 1, "block")]

SOURCE = [
    [Decision("m_1", 2, "block"), Decision("m_2", 1, "release")],
    [Decision("m_1", 1, "release"), Decision("m_1", 3, "block"), Decision("m_2", FAR, "block")],
    [Decision("m_2", 2, "block", amount) for amount in (1, 1, 2)],
    [Decision("m_1", 4, "release", is_fit=False)],
    [Decision("m_1", 5, "release")],
    [Decision("m_2", 4, "release")],
]

STORIES = {
    "EpochCheck": "start a c1 1, plan_batch a 1, start b c1 1, write_batch a: Fenced",
    "RunCheck": "start a c1 1, plan_batch a 1, restore_database 1,"
    " start b c1 1, write_batch a: Fenced",
    "QueryIdCheck": "start a c1 1, plan_batch a 1, adopt c2, write_batch a: UnadoptedCheckpoint",
    "DigestCheck": "start a c1 1, plan_batch a 1, write_batch a,"
    " start b c1 2, plan_batch b 1, write_batch b: ReplayDiverged",
    "KeyCheck": "start a c1 1, run_batches a 1 1, adopt c2,"
    " start b c2 1, plan_batch b 1, write_batch b: Written",
    "FirstBatchCheck": "start a c1 1, run_batches a 1 1, restore_database 1,"
    " start b c1 1: LedgerBehind",
    "NewestBatchCheck": "start a c1 1, run_batches a 1 1, plan_batch a 1, restore_database 1,"
    " write_batch a: LedgerBehind",
    "BatchBeforeCheck": "start a c1 1, run_batches a 1 1, plan_batch a 1, write_batch a,"
    " read_checkpoint b c1 1, commit_batch a, restore_database 1,"
    " begin_run b, plan_batch b 1, write_batch b: LedgerBehind",
    "OlderCheckpointCheck": "start a c1 1, plan_batch a 1, write_batch a,"
    " restore_checkpoint c1 1 yes, start a c1 1: CheckpointBehind",
    "OlderDatabaseCheck": "start a c1 1, run_batches a 2 1, restore_database 1,"
    " start b c1 1: LedgerBehind",
    "AskLedgerAfterCommit": "start a c1 1, plan_batch a 1, write_batch a lost-aborted,"
    " write_batch a: Written",
    "a stage whose number was given out again": "start a c1 1, start b c1 2,"
    " stage_next_batch b 1, restore_database 1, stage_next_batch a 1, write_batch b: StageLost",
}
"""The counter-example of each switch of the model: how the steps end with the safety in place."""

NOT_TOLD = {"StreamRowLock"}
"""Without the lock there are steps that the code does not have."""

OUTCOMES = {
    "read_checkpoint: checkpoint read",
    *("begin_run", "begin_run: UnadoptedCheckpoint", "begin_run: lost"),
    *("begin_run: CheckpointBehind", "begin_run: LedgerBehind"),
    *("plan_batch", "stage_batch: staged", "commit_batch", "kill"),
    *("write_batch: Written", "write_batch: Replayed", "write_batch: lost", "write_batch: Fenced"),
    *("write_batch: UnadoptedCheckpoint", "write_batch: ReplayDiverged"),
    *("write_batch: LedgerBehind", "write_batch: StageLost"),
    *("put_back_database: restored", "put_back_checkpoint: restored", "adopt: adopted"),
    *("requeue: requeued", "requeue: refused", "requeue: proposed", "approve: approved"),
    *("apply: requeued", "apply: refused", "apply: already_resolved", "apply: proposal_outdated"),
    *("apply: second_person_required", "apply: killed", "dismiss: dismissed", "prune: pruned"),
    *("requeue: killed", "dismiss: already_requeued"),
}
"""Of the steps of the machine, each with what it led to."""


RARE = {"dismiss: already_requeued", "apply: killed"}
"""A search may miss them; `test_every_outcome_is_that_of_the_twin` does not."""

ENOUGH = 60_000
"""Steps of a search that has each of the others."""

ENOUGH_FOR_RULES = 1_000
"""Steps of a search in which each rule did something; a busy machine takes fewer."""


@pytest.fixture(scope="module")
def database(
    server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SinkDatabase]:
    """A database that is emptied for each test."""
    with copy_of(server_dsn, template_database) as dsn:
        made = SinkDatabase(dsn, tmp_path_factory.mktemp("checkpoints"))
        yield made
        made.close()


@pytest.fixture
def machine(database: SinkDatabase) -> Iterator[SinkMachine]:
    """A machine whose steps a test takes one by one."""
    made = _machine(database)()
    made.begin(source=SOURCE)
    yield made
    made.teardown()


def _machine(database: SinkDatabase) -> type[SinkMachine]:
    return type("Sink", (SinkMachine,), {"database": database, "effort": Effort()})


def _start(database: SinkDatabase, driver: str) -> object:
    database.start(driver, "c1")
    return database.begin_run(driver)


def test_driver_that_waits_for_its_answer_meets_another_run(database: SinkDatabase) -> None:
    """Between a lost answer and the next attempt another process acts, as in the model."""
    database.begin()
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
    database.begin()
    _start(database, "a")
    assert database.stage("a", 0, BLOCK) == Paused("staged")
    database.kill("a")
    assert database.observe().stages == [(1, 0)]
    _start(database, "a")
    assert database.observe().stages == []
    assert database.stage("a", 0, BLOCK) == Paused("staged")
    assert isinstance(database.take_over("a"), Written)


def test_every_outcome_is_that_of_the_twin(machine: SinkMachine) -> None:
    machine.start("a", "c1", 1)
    machine.run_batches("a", 1, 1)
    machine.stage_next_batch("a", 1)
    machine.write_batch("a", "lost, committed")
    machine.write_batch("a")
    machine.commit_batch("a")
    _propose(machine)
    machine.plan_batch("a", 1)
    machine.write_batch("a", "lost, aborted")
    machine.write_batch("a")
    _apply(machine)
    machine.kill("a")
    _replay(machine)
    unfit = {"place": 1, "is_corrected": True, "dated": 4, "keep_repeats": False}
    machine.requeue(**unfit, is_killed=True)
    machine.requeue(**unfit)
    _restore(machine)
    _adopt(machine)
    machine.prune()
    assert OUTCOMES - machine.effort.steps.keys() == set()
    contents = machine.world.database.contents
    fates = {why for each in contents for _, why in each.suppressed + each.quarantined}
    assert fates == {"repeated", "overtaken", "bad_data", "key_conflict", "future_dated"}
    assert any(each.differing for each in contents)
    assert any(each.duplicates > each.differing for each in contents)


def _propose(machine: SinkMachine) -> None:
    """A decision from the far future: as it is, and dated by hand."""
    machine.requeue(place=0, is_corrected=False, dated=1, keep_repeats=False)
    machine.approve(place=0)
    machine.apply(place=0)
    machine.requeue(place=0, is_corrected=True, dated=3, keep_repeats=False)
    machine.apply(place=0)
    machine.approve(place=0)


def _apply(machine: SinkMachine) -> None:
    """Its subject has a newer decision now, so it is proposed again."""
    machine.apply(place=0)
    machine.requeue(place=0, is_corrected=True, dated=3, keep_repeats=True)
    machine.approve(place=0)
    machine.apply(place=0, is_killed=True)
    machine.dismiss(place=0)
    machine.apply(place=0)
    machine.apply(place=1)
    machine.requeue(place=0, is_corrected=False, dated=1, keep_repeats=False)
    machine.dismiss(place=0)


def _replay(machine: SinkMachine) -> None:
    """Batch 2 is written and not committed; another version of the job decides otherwise."""
    machine.start("b", "c1", 2)
    machine.plan_batch("b", 1)
    machine.write_batch("b")
    machine.read_checkpoint("b", "c1", 1)
    machine.begin_run("b", "lost, committed")
    machine.begin_run("b")
    machine.run_batches("b", 2, 1)
    machine.start("a", "c1", 1)
    machine.stage_next_batch("b", 1)
    machine.write_batch("b")


def _restore(machine: SinkMachine) -> None:
    machine.kill("a")
    machine.start("a", "c1", 1)
    machine.run_batches("a", 1, 1)
    machine.stage_next_batch("a", 1)
    machine.restore_database(1)
    machine.write_batch("a")
    machine.start("a", "c1", 1)
    machine.run_batches("a", 1, 1)
    machine.restore_database(1)
    machine.plan_batch("a", 1)
    machine.write_batch("a")
    machine.start("a", "c1", 1)


def _adopt(machine: SinkMachine) -> None:
    machine.start("b", "c2", 1)
    machine.adopt("c2")
    machine.start("b", "c2", 2)
    machine.run_batches("b", 2, 3)
    machine.plan_batch("b", 1)
    machine.adopt("c1")
    machine.write_batch("b")
    machine.adopt("c2")
    machine.restore_checkpoint("c2", 2, True)
    machine.start("b", "c2", 2)


@pytest.mark.parametrize("name", STORIES)
def test_counter_example_ends_as_in_the_twin(machine: SinkMachine, name: str) -> None:
    steps, outcome = STORIES[name].split(": ")
    for step, *values in map(str.split, steps.split(", ")):
        getattr(machine, step)(*map(_value, values))
    assert machine.world.outcome == outcome


def _value(word: str) -> Any:
    words = {"yes": True, "lost-aborted": "lost, aborted"}
    return int(word) if word.isdecimal() else words.get(word, word)


def test_each_switch_of_the_model_has_its_counter_example() -> None:
    switches = {switch.name for switch in models.load()["sink"].switches}
    assert switches - STORIES.keys() == NOT_TOLD


@pytest.mark.rest
def test_tables_and_outcomes_are_those_of_the_twin(database: SinkDatabase) -> None:
    machine = _machine(database)
    search(machine, machine.effort)
    sys.stdout.write(f"{machine.effort}\n")
    steps = machine.effort.steps
    if steps.total() >= ENOUGH:
        assert OUTCOMES - steps.keys() <= RARE
    elif steps.total() >= ENOUGH_FOR_RULES:
        assert _rules(OUTCOMES) - _rules(steps) == set()


def _rules(outcomes: Iterable[str]) -> set[str]:
    return {each.partition(":")[0] for each in outcomes}
