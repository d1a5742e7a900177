"""What the model of a checkpoint's files holds beyond the sizes in its table."""

from dataclasses import replace

import pytest

from tests.support import models


@pytest.mark.long
@pytest.mark.skipif(not models.JAR.exists(), reason="needs `make tla-jar`")
@pytest.mark.parametrize("create", ["rename", "copy"])
def test_chain_check_suffices_where_a_write_can_replace(create: str) -> None:
    # A run may end by name then, and need a person.
    kept = ["NothingLost", "NothingTwice", "NewestWrites"]
    model = replace(models.load()["checkpoint-files"], invariants=kept)
    store = {"Create": create, "ChainCheck": True}
    size = {"LostAnswers": False, "Savepoints": False}
    explored = models.explore(model, {**model.full, **size, **store}, workers="2")
    assert explored.violated is None
