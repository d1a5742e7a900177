"""The state graph of the sink's twin, in the values of the model."""

from collections.abc import Sequence

from tests.support.models import Constants as ModelConstants
from tests.support.twins.graph import Graph, Map, Value
from tests.support.twins.sink import (
    NONE,
    Batch,
    Constants,
    Database,
    Driver,
    Folder,
    World,
    successors,
)
from tests.support.twins.sink_rows import Decision

LIMITS = ("runs", "crashes", "restores", "copies", "adopted")


def of_sink(constants: ModelConstants) -> Graph:
    """Return the twin's graph at constants of the model."""
    deciding = constants["Deciding"]

    def decisions(event: int, code: int) -> Sequence[Decision]:
        return [Decision(f"e{event}", 1, "block", code)] if event in deciding else []

    initial = World(
        Constants(
            constants["Drivers"],
            constants["Checkpoints"],
            constants["Events"],
            decisions,
            constants["Codes"],
            {name: constants[f"Max{name.capitalize()}"] for name in LIMITS},
        )
    )
    steps: dict[Value, frozenset[tuple[str, Value]]] = {}
    waiting = {_state(initial): initial}
    first = frozenset(waiting)
    while waiting:
        state, world = waiting.popitem()
        after = [(name, _state(each), each) for name, each in successors(world)]
        steps[state] = frozenset((name, value) for name, value, _ in after)
        waiting |= {value: each for _, value, each in after if value not in steps}
    return Graph(first, steps)


def _state(world: World) -> Value:
    constants = world.constants
    return Map(
        {
            "log": tuple(map(_database, world.log)),
            "folder": Map({c: _folder(world.folder_of(c)) for c in constants.checkpoints}),
            "driver": Map({d: _driver(world.driver_of(d)) for d in constants.drivers}),
            "used": Map({name: world.used.get(name, 0) for name in LIMITS}),
        }
    )


def _database(db: Database) -> Value:
    return Map(
        {
            "epoch": db.epoch,
            "run": db.run,
            "query": _query(db.query),
            "ledger": frozenset(map(_batch, db.ledger)),
        }
    )


def _batch(batch: Batch) -> Value:
    rows = batch.content.rows
    return Map(
        {
            "query": batch.query,
            "batch": batch.number,
            "first": batch.first,
            "last": batch.last,
            "digest": (rows[0].amount, frozenset(map(_event, rows))) if rows else (),
            "keys": frozenset(map(_event, batch.content.recorded)),
            "run": batch.run,
            "owner": batch.owner,
            "adopted": _query(batch.adopted),
        }
    )


def _folder(folder: Folder) -> Value:
    return Map({"plans": folder.plans, "committed": folder.committed})


def _driver(driver: Driver) -> Value:
    names = ("state", "run", "epoch", "code", "batch", "newest")
    return Map(
        {
            **{name: getattr(driver, name) for name in names},
            "checkpoint": _query(driver.checkpoint),
            "seen": Map(driver.seen._asdict()),
        }
    )


def _query(name: str | None) -> Value:
    return NONE if name is None else name


def _event(decision: Decision) -> int:
    return int(decision.subject[1:])
