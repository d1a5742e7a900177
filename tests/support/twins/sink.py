"""The twin of docs/models/Sink.tla: immutable states, and one pure function for each action.

An action returns the state after it, or None where the model has no such step. `successors` are all
steps of the model with every safety in place; the test compares their graph with TLC's. Beside what
the model has, a database has the rows that its batches led to (`sink_rows`), stages of tasks, and
what people did to rows (`sink_people`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tests.support.twins.sink_rows import HAND, Content, Decision, Overtaken, digest, written

NO_LIMIT: Final = 10**9
NONE: Final = -1


@dataclass(frozen=True)
class Constants:
    """Those of the model; the safeties are all in place."""

    drivers: Sequence[str] = ("a", "b")
    checkpoints: Sequence[str] = ("c1", "c2")
    events: int = 0
    decisions: Callable[[int, int], Sequence[Decision]] = lambda _event, _code: ()
    """The rows that a version of the job makes of an event."""
    codes: Sequence[int] = (1,)
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Of `used`; without a limit for what is not named."""

    def limit(self, name: str) -> int:
        """Return how often something may happen."""
        return self.limits.get(name, NO_LIMIT)


class Batch(NamedTuple):
    """A row of the ledger, with what it led to."""

    query: str
    number: int
    first: int
    last: int
    """The events that it read."""
    run: int
    epoch: int
    owner: int
    adopted: str | None
    """The run and the query of the stream's row at its COMMIT."""
    content: Content
    of: "Refused | None" = None
    """Of a row that is put back: as it was refused."""

    @property
    def name(self) -> str:
        """Its name in a script."""
        return f"{self.query}/{self.number}" if self.of is None else self.of.name


class Refused(NamedTuple):
    """A row of the quarantine."""

    batch: str
    row: Decision
    reason: str
    nth: int = 0
    """Among those of its batch that look the same."""

    @property
    def name(self) -> str:
        """The name of the batch in which it is put back."""
        return f"{HAND}: {self.row} of {self.batch}"


class Proposal(NamedTuple):
    """A row that a person wants to put back, and that needs a second person."""

    refused: Refused
    row: Decision
    keep_repeats: bool
    overtakes: Overtaken | None
    is_approved: bool = False


class Stage(NamedTuple):
    """The table into which the tasks of a batch copy its rows."""

    epoch: int
    batch: int
    run: int


@dataclass(frozen=True)
class Database:
    """The stream's row, and the ledger in the order of its writing."""

    epoch: int = 0
    run: int = 0
    query: str | None = None
    ledger: tuple[Batch, ...] = ()
    hand_epoch: int = 0
    """Of the stream of rows that are put back."""
    resolved: frozenset[tuple[Refused, str]] = frozenset()
    """Quarantined rows that are resolved, and how."""
    proposals: frozenset[Proposal] = frozenset()
    """Those that are open."""
    pruned: int = 0
    """Of so many batches the days of entries and suppressed decisions are dropped."""
    stages: frozenset[Stage] = frozenset()
    diverged: frozenset[tuple[str, str]] = frozenset()
    """Batches whose replay diverged, each with the replay's digest."""

    def batch(self, query: str, number: int) -> Batch | None:
        """Return a batch of the ledger."""
        rows = (each for each in self.ledger if (each.query, each.number) == (query, number))
        return next(rows, None)

    def newest(self, query: str) -> int:
        """Return the newest batch of a query."""
        return max((each.number for each in self.ledger if each.query == query), default=NONE)

    @property
    def contents(self) -> list[Content]:
        """What each batch wrote."""
        return [each.content for each in self.ledger]

    def without_stages(self, epoch: int, run: int) -> "Database":
        """Return it without the stages of a run and of older ones, if the run may drop them."""
        if (self.epoch, self.run) != (epoch, run) and self.epoch <= epoch:
            return self
        return replace(self, stages=frozenset(each for each in self.stages if each.epoch > epoch))


class Seen(NamedTuple):
    """The newest batches of a checkpoint, as a driver has read them."""

    planned: int = NONE
    committed: int = NONE

    @property
    def next_batch(self) -> int:
        """The batch that Spark runs next."""
        return self.committed + 1 if self.committed != NONE else max(self.planned, 0)


NOTHING: Final = Seen()


@dataclass(frozen=True)
class Folder:
    """A checkpoint: the last event of each plan, and the newest committed batch."""

    plans: tuple[int, ...] = ()
    committed: int = NONE

    @property
    def planned(self) -> int:
        """The newest planned batch."""
        return len(self.plans) - 1

    @property
    def seen(self) -> Seen:
        """What a driver reads of it."""
        return Seen(self.planned, self.committed)

    def first(self, number: int) -> int:
        """Return the first event of a batch."""
        return self.plans[number - 1] + 1 if number else 1

    def events(self, number: int) -> range:
        """Return the events of a batch."""
        return range(self.first(number), self.plans[number] + 1)


@dataclass(frozen=True)
class Driver:
    """What a driver knows."""

    state: str = "down"
    checkpoint: str | None = None
    run: int = 0
    epoch: int = 0
    code: int = 0
    seen: Seen = NOTHING
    batch: int = NONE
    newest: int = NONE
    stage: Stage | None = None
    """Where its tasks staged the batch."""
    stage_is_empty: bool = False
    """A restore of the database brings the table back, and not its rows."""


DOWN: Final = Driver()


@dataclass(frozen=True)
class World:
    """A state of the model."""

    constants: Constants
    log: tuple[Database, ...] = (Database(),)
    folder: Mapping[str, Folder] = field(default_factory=dict)
    driver: Mapping[str, Driver] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    outcome: str = field(default="", compare=False)
    """What the last step returned or raised; not a part of the model's state."""

    @property
    def database(self) -> Database:
        """The database as it is."""
        return self.log[-1]

    def folder_of(self, checkpoint: str) -> Folder:
        """Return a checkpoint."""
        return self.folder.get(checkpoint, Folder())

    def driver_of(self, name: str) -> Driver:
        """Return a driver."""
        return self.driver.get(name, DOWN)

    def transaction(self, database: Database) -> "World":
        """Return the state after a transaction: once no restore is left, only the newest counts."""
        left = self.used.get("restores", 0) < self.constants.limit("restores")
        return replace(self, log=(*self.log, database) if left else (database,))

    def changed(self, **changes: Any) -> "World":
        """Return the state after a transaction that is no moment of its own for a restore."""
        return replace(self, log=(*self.log[:-1], replace(self.database, **changes)))

    def knows(self, name: str, driver: Driver, outcome: str = "") -> "World":
        """Return the state in which a driver knows this."""
        return replace(self, driver={**self.driver, name: driver}, outcome=outcome)

    def uses(self, what: str) -> "World":
        """Return the state in which one thing has happened once more."""
        return replace(self, used={**self.used, what: self.used.get(what, 0) + 1})

    def may(self, what: str) -> bool:
        """Return whether a thing may happen once more."""
        return self.used.get(what, 0) < self.constants.limit(what)

    def keeps(self, checkpoint: str, folder: Folder) -> "World":
        """Return the state in which a checkpoint is this."""
        return replace(self, folder={**self.folder, checkpoint: folder})


Step = World | None


def read_checkpoint(world: World, d: str, checkpoint: str, code: int) -> Step:
    """A new process reads the checkpoint, outside any transaction."""
    if world.driver_of(d).state != "down" or not world.may("runs"):
        return None
    seen = world.folder_of(checkpoint).seen
    run = world.used.get("runs", 0) + 1
    me = Driver("starting", checkpoint, run, 0, code, seen)
    return world.uses("runs").knows(d, me, "checkpoint read")


def begin_run(world: World, d: str, answer: str = "committed") -> Step:
    """It takes the stream, or is refused before the epoch moves."""
    me, db = world.driver_of(d), world.database
    if me.state != "starting":
        return None
    assert me.checkpoint is not None
    if why := start_refused(world, me.checkpoint, me.seen):
        return None if answer != "committed" else world.knows(d, DOWN, why)
    if answer == "lost, aborted":
        return world.knows(d, me, "lost")
    epoch = db.epoch + 1
    taken = replace(db, epoch=epoch, run=me.run, query=me.checkpoint)
    after = world.transaction(taken.without_stages(epoch, me.run))
    if answer == "lost, committed":
        return after.knows(d, me, "lost")
    return after.knows(d, replace(me, state="running", epoch=epoch))


def start_refused(world: World, checkpoint: str, seen: Seen) -> str | None:
    """Return the error of a start that is refused."""
    db = world.database
    recorded = db.newest(checkpoint)
    if db.query not in (None, checkpoint):
        return "UnadoptedCheckpoint"
    if recorded == NONE:
        return "LedgerBehind" if seen.next_batch > 0 else None
    again = world.folder_of(checkpoint).seen if recorded > seen.planned else seen
    if recorded > again.planned:
        return "CheckpointBehind"
    return "LedgerBehind" if recorded < again.committed else None


def plan_batch(world: World, d: str, last: int) -> Step:
    """Spark plans a batch until event `last`, or takes the plan that there is."""
    me = world.driver_of(d)
    if me.state != "running":
        return None
    assert me.checkpoint is not None
    folder = world.folder_of(me.checkpoint)
    number = (folder.committed if me.batch == NONE else me.batch) + 1
    planned = replace(me, state="planned", batch=number)
    if number <= folder.planned:
        if last != NONE:
            return None
        if me.batch == NONE:
            return world.knows(d, planned)
        return world.knows(d, DOWN)
    if not folder.first(number) <= last <= world.constants.events:
        return None
    return world.keeps(me.checkpoint, replace(folder, plans=(*folder.plans, last))).knows(
        d, planned
    )


def rows_of(world: World, me: Driver) -> list[Decision]:
    """Return the rows of a driver's batch."""
    assert me.checkpoint is not None
    events = world.folder_of(me.checkpoint).events(me.batch)
    return [row for event in events for row in world.constants.decisions(event, me.code)]


def write_batch(world: World, d: str, answer: str) -> Step:
    """It writes its batch in one transaction, or repeats that after a COMMIT without an answer."""
    me, db = world.driver_of(d), world.database
    if me.state not in ("planned", "unknown"):
        return None
    assert me.checkpoint is not None
    rows = rows_of(world, me)
    lost = is_lost(db, me, rows)
    if why := write_refused(db, me, rows, is_lost=lost):
        return None if answer != "committed" else _refused(world, d, rows, why)
    finished = replace(me, state="written", newest=me.batch, stage=None)
    present = db.batch(me.checkpoint, me.batch)
    if present is not None:
        ours = me.state == "unknown" and (present.run, present.epoch) == (me.run, me.epoch)
        outcome = "Written" if ours else "Replayed"
        return None if answer != "committed" else _ends(world, d, outcome, finished)
    if answer == "lost, aborted":
        return world.knows(d, replace(me, state="unknown"), "lost")
    content = written(db.contents, rows)
    events = world.folder_of(me.checkpoint).events(me.batch)
    batch = Batch(
        me.checkpoint,
        me.batch,
        events.start,
        events.stop - 1,
        me.run,
        me.epoch,
        db.run,
        db.query,
        content,
    )
    after = world.transaction(replace(db, ledger=(*db.ledger, batch)))
    if answer == "lost, committed":
        return after.knows(d, replace(me, state="unknown"), "lost")
    return _ends(after, d, "Written", finished)


def write_refused(
    db: Database, me: Driver, rows: Sequence[Decision], *, is_lost: bool = False
) -> str | None:
    """Return the error of a batch that is refused."""
    assert me.checkpoint is not None
    if why := fenced(db, me):
        return why
    if is_lost and rows and me.state != "unknown":
        return "StageLost"  # The digest is that of the staged rows.
    present, newest = db.batch(me.checkpoint, me.batch), db.newest(me.checkpoint)
    if present is not None:
        differs = digest(present.content.rows) != digest(rows)
        return ("StageLost" if is_lost else "ReplayDiverged") if differs else None
    if me.newest != NONE:
        behind = db.batch(me.checkpoint, me.newest) is None
    else:
        behind = me.batch > 0 if newest == NONE else newest < me.batch - 1
    return "LedgerBehind" if behind else "StageLost" if is_lost else None


def fenced(db: Database, me: Driver) -> str | None:
    """Return the error of a driver that lost the stream."""
    if (db.epoch, db.run) != (me.epoch, me.run):
        return "Fenced"
    return "UnadoptedCheckpoint" if db.query != me.checkpoint else None


def commit_batch(world: World, d: str) -> Step:
    """Spark records that the sink has returned."""
    me = world.driver_of(d)
    if me.state != "written":
        return None
    assert me.checkpoint is not None
    folder = world.folder_of(me.checkpoint)
    kept = replace(folder, committed=max(folder.committed, me.batch))
    return world.keeps(me.checkpoint, kept).knows(d, replace(me, state="running"))


def crash(world: World, d: str) -> Step:
    """A driver is killed."""
    if world.driver_of(d).state == "down" or not world.may("crashes"):
        return None
    return world.uses("crashes").knows(d, DOWN)


def put_back_database(world: World, number: int) -> Step:
    """The database is as after its n-th transaction; drivers and checkpoints remember the rest."""
    if not (1 <= number < len(world.log) and world.may("restores")):
        return None
    after = world.uses("restores")
    restored = world.log[number - 1]
    log = world.log[:number] if after.may("restores") else (restored,)
    drivers = {name: _after_restore(me) for name, me in world.driver.items()}
    return replace(after, log=log, driver=drivers, outcome="restored")


def _after_restore(me: Driver) -> Driver:
    return replace(me, stage_is_empty=me.stage is not None)


def put_back_checkpoint(world: World, checkpoint: str, planned: int, committed: int) -> Step:
    """A checkpoint is an older copy of itself; no driver of it runs."""
    folder = world.folder_of(checkpoint)
    is_in_use = any(each.checkpoint == checkpoint for each in world.driver.values())
    is_older = planned < folder.planned or (
        planned == folder.planned and committed < folder.committed
    )
    if is_in_use or not world.may("copies") or planned - committed not in (0, 1) or not is_older:
        return None
    copy = Folder(folder.plans[: planned + 1], committed)
    return replace(world.uses("copies").keeps(checkpoint, copy), outcome="restored")


def adopt(world: World, checkpoint: str) -> Step:
    """A person lets the stream adopt a checkpoint."""
    if world.database.query in (None, checkpoint) or not world.may("adopted"):
        return None
    after = world.uses("adopted").transaction(replace(world.database, query=checkpoint))
    return replace(after, outcome="adopted")


def successors(world: World) -> Iterator[tuple[str, World]]:
    """Yield every step of the model, by the action's name there."""
    constants = world.constants
    answers = ("committed", "lost, committed", "lost, aborted")
    for d in constants.drivers:
        for c, code in product(constants.checkpoints, constants.codes):
            yield from _step("ReadCheckpoint", read_checkpoint(world, d, c, code))
        yield from _step("BeginRun", begin_run(world, d))
        for last in (NONE, *range(1, constants.events + 1)):
            yield from _step("PlanBatch", plan_batch(world, d, last))
        for answer in answers:
            yield from _step("WriteBatch", write_batch(world, d, answer))
        yield from _step("CommitBatch", commit_batch(world, d))
        yield from _step("Crash", crash(world, d))
    for number in range(1, len(world.log) + 1):
        yield from _step("PutBackDatabase", put_back_database(world, number))
    numbers = range(NONE, constants.events + 1)
    for c in constants.checkpoints:
        for planned, committed in product(numbers, numbers):
            step = put_back_checkpoint(world, c, planned, committed)
            yield from _step("PutBackCheckpoint", step)
        yield from _step("Adopt", adopt(world, c))


def _step(name: str, step: Step) -> Iterator[tuple[str, World]]:
    if step is not None:
        yield name, step


def _refused(world: World, d: str, rows: Sequence[Decision], why: str) -> World:
    if why == "ReplayDiverged":
        me = world.driver_of(d)
        row = (f"{me.checkpoint}/{me.batch}", digest(rows))
        world = world.changed(diverged=world.database.diverged | {row})
    return _ends(world, d, why)


def _ends(world: World, d: str, outcome: str, after: Driver = DOWN) -> World:
    """Return the state after the sink has returned, or raised: then the driver stops."""
    me = world.driver_of(d)
    if me.stage is not None:
        left = world.database.without_stages(me.epoch, me.run)
        world = world.changed(stages=left.stages)
    return world.knows(d, after, outcome)


# Steps that are in the machine alone.


def stage_batch(world: World, d: str) -> Step:
    """Tasks stage the rows of a batch; the driver has not taken them over yet."""
    me = world.driver_of(d)
    if me.state != "planned" or me.stage is not None:
        return None
    stage = Stage(me.epoch, me.batch, me.run)
    left = world.database.without_stages(me.epoch, me.run)
    after = world.transaction(replace(left, stages=left.stages | {stage}))
    return after.knows(d, replace(me, stage=stage), "staged")


def is_lost(db: Database, me: Driver, rows: Sequence[Decision]) -> bool:
    """Return whether the rows that a driver's tasks staged are missing."""
    if me.stage is None:
        return False
    return me.stage not in db.stages or (me.stage_is_empty and bool(rows))
