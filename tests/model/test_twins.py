"""The twins in Python have the states and steps of the models that TLC finds."""

from collections.abc import Callable, Mapping

import pytest

from tests.support import models
from tests.support.models import Constants
from tests.support.twins import delivery, graph
from tests.support.twins.delivery_state import Budget, World, init
from tests.support.twins.graph import Graph
from tests.support.twins.sink_graph import of_sink

explored_by_tlc = pytest.mark.skipif(not models.JAR.exists(), reason="needs `make tla-jar`")


def of_delivery(constants: Constants) -> Graph:
    world = World.of(constants)
    limits = ("Faults", "Replays", "Cancels", "Holds", "Pauses")
    budget = Budget(*(constants[f"Max{name}"] for name in limits))
    return graph.of_twin(init(world, budget), lambda state: delivery.steps(world, state))


ALL_ONCE = {f"Max{name}": 1 for name in ("Replays", "Cancels", "Holds", "Pauses")}

TWO_CHECKPOINTS = {
    "Checkpoints": ["c1", "c2"],
    "Codes": [1, 2],
    "Drivers": ["a"],
    **{f"Max{name}": 1 for name in ("Crashes", "Copies", "Restores", "Adopted")},
}

TWINS: Mapping[str, tuple[Callable[[Constants], Graph], Constants]] = {
    "delivery of one entry": (of_delivery, {"Entries": 1, "MaxFaults": 1, **ALL_ONCE}),
    "delivery of two entries": (of_delivery, {"Entries": 2, "MaxFaults": 1, "MaxReplays": 0}),
    "sink under one checkpoint": (of_sink, {}),
    "sink under two checkpoints": (of_sink, {**TWO_CHECKPOINTS, "MaxRestores": 0}),
    "sink under two checkpoints, one restored": (of_sink, TWO_CHECKPOINTS),
}
"""The name of the model and a size of it, its twin, and what differs from its small size."""


MARKS = {
    "delivery of one entry": [pytest.mark.rest],
    "sink under two checkpoints": [pytest.mark.rest],
    "sink under two checkpoints, one restored": [pytest.mark.long],
}
"""Of those that take longer."""

ALL = [pytest.param(name, marks=MARKS.get(name, [])) for name in TWINS]


@explored_by_tlc
@pytest.mark.parametrize("name", ALL)
def test_twin_has_the_states_and_steps_of_its_model(name: str) -> None:
    twin, size = TWINS[name]
    model = models.load().get(name.split(maxsplit=1)[0])
    if model is None:
        pytest.skip("its model is not written yet")
    constants = {**model.constants("small"), **size}
    of_model = graph.of_model(model, constants)
    of_twin = twin(constants)
    assert graph.differences(of_model, of_twin) == []
    assert of_model == of_twin
