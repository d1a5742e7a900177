"""The exposure step of the job decides as its model does, for every short sequence of batches.

The model's step is compared with its twin in Python on the states that TLC reaches, and the twin
with the job's step on every placement of a few events in a few batches, at every sequence of
watermarks. Each placement is a merchant of its own, so one call of the step tries them all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import pyarrow as pa
import pytest

from holdfast.deploy.local.demo.reference import Event, Hand
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import StepOutput, step
from tests.support import models
from tests.support.job.exposure import START, WINDOW, arrow, decisions
from tests.support.models import Constants
from tests.support.twins import exposure, graph
from tests.support.twins.exposure import NO_HAND, ByHand, Memory, Result, Row, Rules, Window
from tests.support.twins.graph import Value

explored_by_tlc = pytest.mark.skipif(not models.JAR.exists(), reason="needs `make tla-jar`")

UNIT = WINDOW // exposure.LENGTH
LATEST = 8
"""The last watermark: past the cutoff of the third window, and the end of one without an event."""

Placement = tuple[frozenset[Row], ...]
"""The rows of one merchant in each batch."""


@explored_by_tlc
@pytest.mark.parametrize(
    "size",
    [
        pytest.param({"MaxTime": 4, "Falls": []}, id="few"),
        pytest.param({"MaxRepeats": 1, "Times": [1, 2]}, id="more", marks=pytest.mark.long),
    ],
)
def test_twin_of_exposure_steps_as_the_model_does(size: Constants) -> None:
    model = models.load()["exposure"]
    constants = {**model.constants("small"), **size}
    rules = Rules.of(constants)
    ran = [
        state
        for state in graph.of_model(model, constants).steps
        if state["plan"]["made"] and state["plan"]["ran"]
    ]
    assert {state["plan"]["hand"] for state in ran} == {0, 1}
    assert [state for state in ran if not _is_as_modelled(rules, state)] == []


def _is_as_modelled(rules: Rules, state: Value) -> bool:
    plan, before = state["plan"], state["state"]
    sequence = plan["hand"]
    decision = _by_hand(state["hand"][sequence - 1]) if sequence else NO_HAND
    rows, events = (
        frozenset(Row(**row) for row in each) for each in (plan["rows"], state["events"])
    )
    result = exposure.step(
        rules, _memory(before), rows, plan["mark"], decision, sequence, before=events
    )
    did = tuple((each["act"], each["w"]) for each in plan["did"])
    return (result.memory, result.did) == (_memory(plan["state"]), did)


def _memory(state: Value) -> Memory:
    return Memory(
        win=tuple(Window(**window) for window in state["win"]),
        ids=state["ids"],
        latest=state["latest"],
        held=state["held"],
        hand=state["hand"],
        by=_by_hand(state["by"]),
        muted=state["muted"],
    )


def _by_hand(decision: Value) -> ByHand:
    return ByHand(**decision)


class Person(NamedTuple):
    """Who blocks or releases in a batch, at its watermark."""

    batch: int
    act: str
    lasts: int | None


NEVER = 99
"""As in the model: no end."""


@dataclass
class Comparison:
    """The job's step beside the twin, for many merchants at once."""

    rules: Rules
    placements: Sequence[Placement]
    names: list[str] = field(init=False)
    tables: list[pa.Table] = field(init=False)
    results: dict[tuple[Memory, frozenset[Row], int], Result] = field(default_factory=dict)
    steps: int = 0
    by_hand: Sequence[Person] | None = None
    """For each merchant, what a person decides; None for nothing."""

    def __post_init__(self) -> None:
        self.names = [f"m{number:05}" for number in range(len(self.placements))]
        batches = range(len(self.placements[0]))
        self.tables = [arrow(list(self._events(batch))) for batch in batches]
        self.policy = Policy.parse(
            f'version = "v1"\n[[default]]\nlimit_minor = {self.rules.limit}\n'
            f"release_level_minor = {self.rules.release_level}\n"
        )
        self.settings = Settings(late_cutoff_us=self.rules.cutoff * UNIT)

    def _events(self, batch: int) -> Iterator[Event]:
        for name, placement in zip(self.names, self.placements, strict=True):
            for row in placement[batch]:
                yield Event(
                    event_id=f"e{row.id}",
                    merchant_id=name,
                    type="payout_submitted",
                    amount_minor=row.amount,
                    currency="USD",
                    occurred_at_us=START + row.at * UNIT,
                    future_dated=False,
                )

    def run(self) -> None:
        """Compare every sequence of watermarks; those that begin alike share their steps."""
        begun = [Memory.begun(self.rules.windows)] * len(self.placements)
        self._run(0, 0, GroupState.empty(), begun)

    def _run(self, batch: int, mark: int, state: GroupState, memories: list[Memory]) -> None:
        if batch == len(self.tables):
            return
        for following in range(mark, LATEST + 1):
            watermark = START + following * UNIT
            by_hand = decisions(list(self._decided(batch, following)))
            rows, policy, settings = self.tables[batch], self.policy, self.settings
            after, output = step(state, rows, watermark, policy, settings, by_hand)
            results = [
                self._result(number, memory, batch, following)
                for number, memory in enumerate(memories)
            ]
            self.steps += len(results)
            self._require_same(output, after, batch, results)
            self._run(batch + 1, following, after, [each.memory for each in results])

    def _decided(self, batch: int, mark: int) -> Iterator[Hand]:
        for name, person in zip(self.names, self.by_hand or (), strict=False):
            if person.batch == batch:
                at = START + mark * UNIT
                until = None if person.lasts is None else at + person.lasts * UNIT
                yield Hand(name, 1, person.act == "block", at, until)

    def _result(self, number: int, memory: Memory, batch: int, mark: int) -> Result:
        placement = self.placements[number]
        if self.by_hand is not None:
            person, before = self.by_hand[number], frozenset().union(*placement[:batch])
            until = NEVER if person.lasts is None else mark + person.lasts
            decision = ByHand(person.act, mark, until) if person.batch == batch else memory.by
            rows, sequence = placement[batch], int(batch >= person.batch)
            return exposure.step(self.rules, memory, rows, mark, decision, sequence, before)
        key = memory, placement[batch], mark
        result = self.results.get(key)
        if result is None or memory.ids:
            before = frozenset().union(*placement[:batch])
            result = self.results[key] = exposure.step(self.rules, *key, before=before)
        return result

    def _require_same(
        self, output: StepOutput, after: GroupState, batch: int, results: Sequence[Result]
    ) -> None:
        named = list(zip(self.names, results, strict=True))
        assert _columns(
            output.windows, "merchant_id", "window_end", "revision", "exposure_minor"
        ) == [
            (name, START + number * WINDOW, window.revision, window.sum)
            for name, result in named
            for number, window in result.shown
        ]
        assert _columns(output.decisions, "merchant_id", "window_end", "action") == [
            (name, START + each.w * WINDOW, each.act)
            for name, result in named
            for each in result.did
        ]
        refused = _columns(output.late, "merchant_id", "event_id")
        assert sorted(refused) == sorted(
            (name, f"e{row.id}")
            for (name, result), placement in zip(named, self.placements, strict=True)
            for row in placement[batch] - result.applied
        )
        assert _columns(after.merchants, "merchant_id", "held") == [
            (name, result.memory.held != "no")
            for name, result in named
            if result.memory.held != "no"
            or result.memory.muted
            or any(each.there for each in result.memory.win)
        ]


def _columns(table: pa.Table, *names: str) -> list[tuple[object, ...]]:
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in (table[name] for name in names)
    ]
    return list(zip(*columns, strict=True))


def placements(
    batches: int, events: int, times: Sequence[int], amounts: Sequence[int]
) -> list[Placement]:
    """Return each way to place at most so many events, and each event that comes twice."""
    places = list(product(range(batches), times, amounts))
    placements = []
    for count in range(events + 1):
        for chosen in combinations_with_replacement(places, count):
            rows = [
                (batch, Row(number, at, amount))
                for number, (batch, at, amount) in enumerate(chosen)
            ]
            placements.append(_placed(batches, rows))
    for (batch, at, amount), again in product(places, range(batches)):
        if again > batch:
            placements.append(
                _placed(batches, [(each, Row(0, at, amount)) for each in (batch, again)])
            )
    return placements


def _placed(batches: int, rows: Sequence[tuple[int, Row]]) -> Placement:
    return tuple(
        frozenset(row for batch, row in rows if batch == number) for number in range(batches)
    )


SIZES = {
    "two events in three batches": (3, 2, (2, 1, -1)),
    "three events in three batches": (3, 3, (2, -1)),
    "two events in four batches": (4, 2, (2, 1, -1)),
}
"""Batches, the maximum of events, and their amounts."""

LONG = {"three events in three batches", "two events in four batches"}
"""Those that take longer, for `make model`."""


@pytest.mark.parametrize("cutoff", [1, 3], ids=["cutoff below a window", "cutoff above a window"])
@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=[pytest.mark.long] * (size in LONG)) for size in SIZES]
)
def test_step_decides_as_its_model(size: str, cutoff: int) -> None:
    batches, events, amounts = SIZES[size]
    rules = Rules(windows=4, cutoff=cutoff, limit=1, release_level=0)
    comparison = Comparison(rules, placements(batches, events, (1, 3, 4), amounts))
    comparison.run()
    assert comparison.steps == len(comparison.placements) * STEPS[batches]


@pytest.mark.parametrize("cutoff", [1, pytest.param(3, marks=pytest.mark.rest)])
def test_step_follows_a_person_as_its_model(cutoff: int) -> None:
    rules = Rules(windows=4, cutoff=cutoff, limit=1, release_level=0)
    people = [
        Person(batch, act, lasts)
        for batch in range(2)
        for act in ("block", "release")
        for lasts in (None, 2)
    ]
    each = list(product(placements(3, 1, (1, 3, 4), (2, -1)), people))
    comparison = Comparison(
        rules, [placement for placement, _ in each], by_hand=[person for _, person in each]
    )
    comparison.run()
    assert comparison.steps == len(each) * STEPS[3]


STEPS = {3: 219, 4: 714}
"""Steps of one merchant: the sequences of at most so many watermarks, none below the one before."""
