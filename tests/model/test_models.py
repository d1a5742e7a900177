"""The models of docs/models hold, and each safety that is removed is missed."""

import re

import pytest

from tests.support import models
from tests.support.models import MODELS, ROOT, Model, Switch

ALL = models.load()
SWITCHES = [(model, switch) for model in ALL.values() for switch in model.switches]

explored_by_tlc = pytest.mark.skipif(not models.JAR.exists(), reason="needs `make tla-jar`")


@explored_by_tlc
@pytest.mark.parametrize("model", ALL.values(), ids=list(ALL))
def test_model_holds_at_small_size(model: Model) -> None:
    explored = models.explore(model, model.constants("small"))
    assert list(models.faults_of_size(model, "small", explored)) == []


@explored_by_tlc
@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "switch"), SWITCHES, ids=[f"{model.name}-{each.name}" for model, each in SWITCHES]
)
def test_safety_is_missed_in_the_model(model: Model, switch: Switch) -> None:
    explored = models.explore(model, model.without(switch))
    assert list(models.faults_of_switch(model, switch, explored)) == []


@pytest.mark.parametrize("model", ALL.values(), ids=list(ALL))
def test_table_of_a_model_names_what_there_is(model: Model) -> None:
    module = (MODELS / f"{model.module}.tla").read_text()
    for name in (*model.invariants, *model.properties):
        assert re.search(rf"^{name} ==", module, re.MULTILINE), name
    for switch in model.switches:
        assert switch.name in model.full
        assert switch.breaks in (*model.invariants, *model.properties)
        code = switch.code.removeprefix("designed").strip()
        assert not code or (ROOT / code).exists(), code


@pytest.mark.parametrize("model", ALL.values(), ids=list(ALL))
def test_page_of_a_model_names_each_invariant_and_switch(model: Model) -> None:
    page = (MODELS / f"{model.name}.md").read_text()
    names = [*model.invariants, *model.properties, *(each.name for each in model.switches)]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_page_of_models_has_what_their_tables_have() -> None:
    assert models.table(ALL) in (MODELS / "README.md").read_text()
