"""Drives the sink's twin and a real database together, and compares after every step.

A run that fails shrinks to the shortest list of steps with small values; each step is a rule below.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.sink import Replayed, Written
from holdfast.sink.errors import SinkError
from tests.support.servers.postgres_proxy import Fault
from tests.support.twins import sink, sink_people
from tests.support.twins.images import Image
from tests.support.twins.pausing import Paused
from tests.support.twins.search import Effort
from tests.support.twins.sink import DOWN, NONE, Constants, Folder, Proposal, Refused, Step, World
from tests.support.twins.sink_database import SinkDatabase
from tests.support.twins.sink_people import OPEN, proposal_name
from tests.support.twins.sink_rows import FAR, Decision, corrected

EVENTS = 100
"""More than a run reads. Only the first ones decide anything."""

DRIVERS = ("a", "b")
BUSY = ("planned", "unknown", "written")
ALIVE = ("starting", "running", "planned", "unknown", "written")
NEW = ("c1", "c2", "c3", "c4")
CHECKPOINTS = st.runner().flatmap(lambda machine: st.sampled_from(machine.checkpoints()))
CODES = st.sampled_from([1, 1, 2])
ANSWERS = {
    "committed": None,
    "lost, committed": Fault.ANSWER_LOST,
    "lost, aborted": Fault.COMMIT_LOST,
}
ANSWER = st.sampled_from([*["committed"] * 4, *ANSWERS])
KILLED = st.sampled_from([False, False, False, True])
OTHERS = st.runner().flatmap(
    lambda machine: st.sampled_from([c for c in NEW[:2] if c != machine.world.database.query])
)
DECISION = st.builds(
    Decision,
    st.sampled_from(["m_1", "m_2"]),
    st.sampled_from([1, 1, 2, 2, 3, 4, FAR]),
    st.sampled_from(["block", "release"]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([True, True, True, True, False]),
)
SOURCE = st.lists(st.lists(DECISION, max_size=3), max_size=12)


def among(*states: str) -> st.SearchStrategy[str]:
    """Choose a driver in one of these states."""
    return st.runner().flatmap(lambda machine: st.sampled_from(machine.drivers(*states)))


def some(*states: str) -> Callable[[Any], Any]:
    """Let a rule apply only where a driver is in one of these states."""
    return precondition(lambda machine: machine.drivers(*states))


class SinkMachine(RuleBasedStateMachine):
    """Every step is one of the twin; the database must do the same."""

    database: ClassVar[SinkDatabase]
    effort: ClassVar[Effort]

    def __init__(self) -> None:
        super().__init__()
        self.effort.examples += 1
        self.world = World(Constants())
        self.images: list[Image] = []
        self.database.begin()

    @initialize(source=SOURCE)
    def begin(self, source: list[list[Decision]]) -> None:
        """The decisions of each event; a later version of the job has other amounts."""

        def decisions(event: int, code: int) -> Sequence[Decision]:
            rows = source[event - 1] if event <= len(source) else []
            return [row if code == 1 else _with_amount(row, row.amount + 5) for row in rows]

        self.world = World(Constants(events=EVENTS, decisions=decisions))

    # Drivers.

    @some("down")
    @rule(driver=among("down"), checkpoint=CHECKPOINTS, code=CODES)
    def read_checkpoint(self, driver: str, checkpoint: str, code: int) -> None:
        step = sink.read_checkpoint(self.world, driver, checkpoint, code)
        self._take("read_checkpoint", step, lambda: self.database.start(driver, checkpoint), driver)

    @some("starting")
    @rule(driver=among("starting"), answer=ANSWER)
    def begin_run(self, driver: str, answer: str = "committed") -> None:
        step = sink.begin_run(self.world, driver, answer)
        self._take(
            "begin_run",
            step,
            lambda: self.database.begin_run(driver, ANSWERS[answer]),
            driver,
        )

    @some("down")
    @rule(driver=among("down"), checkpoint=CHECKPOINTS, code=CODES)
    def start(self, driver: str, checkpoint: str, code: int) -> None:
        self.read_checkpoint(driver, checkpoint, code)
        self.begin_run(driver)

    def plan_batch(self, driver: str, events: int) -> None:
        me = self.world.driver_of(driver)
        if me.state != "running" or me.checkpoint is None:
            return
        folder = self.world.folder_of(me.checkpoint)
        number = (folder.committed if me.batch == NONE else me.batch) + 1
        last = NONE if number <= folder.planned else folder.first(number) + events - 1
        step = sink.plan_batch(self.world, driver, last)
        checkpoint = self.database.checkpoint(me.checkpoint)
        self._take("plan_batch", step, lambda: checkpoint.plan(number), driver)

    def stage_batch(self, driver: str) -> None:
        step = sink.stage_batch(self.world, driver)
        me = self.world.driver_of(driver)
        self._take(
            "stage_batch",
            step,
            lambda: self.database.stage(driver, me.batch, sink.rows_of(self.world, me)),
            driver,
        )

    @some("planned", "unknown")
    @rule(driver=among("planned", "unknown"), answer=ANSWER)
    def write_batch(self, driver: str, answer: str = "committed") -> None:
        step = sink.write_batch(self.world, driver, answer)
        me, fault = self.world.driver_of(driver), ANSWERS[answer]

        def act() -> Any:
            if me.state == "unknown":
                return self.database.retry(driver, fault)
            if me.stage is not None:
                return self.database.take_over(driver, fault)
            rows = sink.rows_of(self.world, me)
            return self.database.write(driver, me.batch, rows, fault)

        self._take("write_batch", step, act, driver)

    def commit_batch(self, driver: str) -> None:
        me = self.world.driver_of(driver)
        step = sink.commit_batch(self.world, driver)
        if step is None or me.checkpoint is None:
            return
        checkpoint = self.database.checkpoint(me.checkpoint)
        self._take("commit_batch", step, lambda: checkpoint.commit(me.batch), driver)

    @some("running")
    @rule(
        driver=among("running"),
        batches=st.integers(1, 3),
        events=st.integers(1, 2),
        last_answer=ANSWER,
    )
    def run_batches(
        self, driver: str, batches: int, events: int, last_answer: str = "committed"
    ) -> None:
        for answer in [*["committed"] * (batches - 1), last_answer]:
            self.plan_batch(driver, events)
            self.write_batch(driver, answer)
            self.commit_batch(driver)

    @some("running")
    @rule(driver=among("running"), events=st.integers(1, 2))
    def stage_next_batch(self, driver: str, events: int) -> None:
        self.plan_batch(driver, events)
        self.stage_batch(driver)

    @some(*ALIVE)
    @rule(driver=among(*ALIVE), steps=st.integers(1, 6), events=st.integers(1, 2))
    def go_on(self, driver: str, steps: int, events: int) -> None:
        """Whatever a driver does next, if nothing comes in between."""
        for _ in range(steps):
            match self.world.driver_of(driver).state:
                case "starting":
                    self.begin_run(driver)
                case "running":
                    self.plan_batch(driver, events)
                case "written":
                    self.commit_batch(driver)
                case "planned" | "unknown":
                    self.write_batch(driver)

    @some(*BUSY)
    @rule(driver=among(*BUSY), code=CODES)
    def restart(self, driver: str, code: int) -> None:
        """Kill a driver within its batch, and let a new process repeat the batch."""
        checkpoint = self.world.driver_of(driver).checkpoint
        assert checkpoint is not None
        self.kill(driver)
        self.start(driver, checkpoint, code)
        self.plan_batch(driver, 1)

    @some(*BUSY)
    @rule(driver=among(*BUSY))
    def kill(self, driver: str) -> None:
        step = sink.crash(self.world, driver)
        self._take("kill", step, lambda: self.database.kill(driver), driver)

    # Moments that come back.

    @precondition(lambda self: len(self.images) > 3)
    @rule(transactions=st.sampled_from([1, 1, 1, 2, 3, 5, 8]))
    def restore_database(self, transactions: int) -> None:
        number = max(len(self.world.log) - transactions, 1)
        step = sink.put_back_database(self.world, number)

        def act() -> str:
            self.database.put_back(self.images[number - 1])
            return "restored"

        if self._take("put_back_database", step, act):
            del self.images[number - 1 :]

    @precondition(lambda self: self.world.folder)
    @rule(checkpoint=CHECKPOINTS, batches=st.integers(0, 2), is_committed=st.booleans())
    def restore_checkpoint(self, checkpoint: str, batches: int, is_committed: bool) -> None:
        folder = self.world.folder_of(checkpoint)
        planned = folder.planned - batches
        committed = planned if is_committed else planned - 1
        if min(planned, committed) < NONE or (planned, committed) == folder.seen:
            return
        for name, driver in self.world.driver.items():
            if driver.checkpoint == checkpoint:
                self.kill(name)
        step = sink.put_back_checkpoint(self.world, checkpoint, planned, committed)

        def act() -> str:
            self.database.checkpoint(checkpoint).put_back(planned, committed)
            return "restored"

        self._take("put_back_checkpoint", step, act)

    # People.

    @precondition(lambda self: self._is_adopted_one_busy())
    @rule(checkpoint=OTHERS)
    def adopt(self, checkpoint: str) -> None:
        step = sink.adopt(self.world, checkpoint)
        self._take("adopt", step, lambda: self.database.adopt(checkpoint))

    @precondition(lambda self: self.world.database.ledger and len(self.drivers("down")) > 1)
    @rule(driver=among("down"))
    def begin_new_checkpoint(self, driver: str) -> None:
        """What a person does whose checkpoint and ledger do not match any more."""
        unused = [each for each in NEW if self.world.folder_of(each) == Folder()]
        if unused:
            self.adopt(unused[0])
            self.start(driver, unused[0], 1)

    @precondition(lambda self: self._open())
    @rule(
        place=st.integers(0, 5),
        is_corrected=st.booleans(),
        dated=st.integers(1, 4),
        keep_repeats=st.booleans(),
        is_killed=KILLED,
    )
    def requeue(
        self,
        place: int,
        is_corrected: bool,
        dated: int,
        keep_repeats: bool,
        is_killed: bool = False,
    ) -> None:
        rows = self._open()
        refused = rows[place % len(rows)]
        row = corrected(refused.row, dated) if is_corrected else refused.row
        how = {"keep_repeats": keep_repeats, "is_killed": is_killed}
        step = sink_people.requeue(self.world, refused, row, **how)
        self._take("requeue", step, lambda: self.database.requeue(refused, row, **how))

    @precondition(lambda self: self.world.database.proposals)
    @rule(place=st.integers(0, 3))
    def approve(self, place: int) -> None:
        proposal = self._proposal(place)
        step = sink_people.approve(self.world, proposal)
        self._take("approve", step, lambda: self.database.approve(proposal))

    @precondition(lambda self: self.world.database.proposals)
    @rule(place=st.integers(0, 3), is_killed=KILLED)
    def apply(self, place: int, is_killed: bool = False) -> None:
        proposal = self._proposal(place)
        step = sink_people.apply(self.world, proposal, is_killed=is_killed)
        act = partial(self.database.apply, proposal, is_killed=is_killed)
        self._take("apply", step, act)

    @precondition(lambda self: self._open())
    @rule(place=st.integers(0, 5))
    def dismiss(self, place: int) -> None:
        rows = self._open()
        refused = rows[place % len(rows)]
        step = sink_people.dismiss(self.world, refused)
        self._take("dismiss", step, lambda: self.database.dismiss(refused))

    @precondition(lambda self: any(each.entries for each in self.world.database.contents))
    @rule()
    def prune(self) -> None:
        self._take("prune", sink_people.prune(self.world), self.database.prune)

    # Around the steps.

    def teardown(self) -> None:
        for driver in self.world.driver:
            self.database.kill(driver)

    def _is_adopted_one_busy(self) -> bool:
        drivers = map(self.world.driver_of, self.drivers(*BUSY))
        return any(each.checkpoint == self.world.database.query for each in drivers)

    def checkpoints(self) -> list[str]:
        """Return the checkpoints, the adopted one several times: another is refused at once."""
        return [*[self.world.database.query or "c1"] * 4, "c1", "c2"]

    def drivers(self, *states: str) -> list[str]:
        """Return the drivers in one of these states."""
        return [each for each in DRIVERS if self.world.driver_of(each).state in states]

    def _open(self) -> list[Refused]:
        rows = sink_people.quarantine(self.world.database)
        return sorted(each for each, resolution in rows.items() if resolution == OPEN)

    def _proposal(self, place: int) -> Proposal:
        proposals = sorted(self.world.database.proposals, key=proposal_name)
        return proposals[place % len(proposals)]

    def _take(
        self, name: str, step: Step, act: Callable[[], Any], driver: str | None = None
    ) -> bool:
        """Take a step in the database too, and compare; nothing where the twin has no such step."""
        if step is None:
            return False
        if len(step.log) > len(self.world.log):
            self.images.append(self.database.take())
        outcome = _name(act())
        self.effort.steps[f"{name}: {step.outcome}".removesuffix(": ")] += 1
        assert outcome == step.outcome, f"{name}: {step.outcome} here, {outcome} in the database"
        if driver is not None and step.driver_of(driver) == DOWN:
            self.database.kill(driver)
        self.world = step
        differences = sink_people.observed(step).differences(self.database.observe())
        assert not differences, "\n".join(differences)
        return True


def _name(result: Any) -> str:
    match result:
        case None:
            return ""
        case str():
            return result
        case Paused(where="retry"):
            return "lost"
        case Paused():
            return result.where
        case Written() | Replayed() | SinkError():
            return type(result).__name__
        case psycopg.Error() | Exception():
            raise result
        case _:
            return str(result)


def _with_amount(row: Decision, amount: int) -> Decision:
    return Decision(row.subject, row.window, row.action, amount, row.is_fit)
