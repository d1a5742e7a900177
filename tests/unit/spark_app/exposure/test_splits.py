"""Other micro-batch boundaries meet the same windows and the same decisions."""

from typing import Any

import pytest
from hypothesis import given, settings

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from tests.support.job.exposure_runs import Batch, apply, plain, policies, splits


def _outcome(batches: list[Batch], policy: Policy) -> tuple[list[Any], list[Any]]:
    state, windows, decisions = GroupState.empty(), [], []
    for batch in batches:
        state, output = apply(state, batch, policy, Settings())
        result = plain(output)
        windows += result.windows
        decisions += result.decisions
        assert not [late for late in result.late if late[0] != "duplicate"]
    assert state.windows.num_rows == 0
    return sorted(windows), sorted(decisions)


@pytest.mark.rest
@given(policies(), splits())
@settings(max_examples=100, deadline=None)
def test_cutting_a_stream_elsewhere_changes_no_window_and_no_decision(
    text: str, split: tuple[list[Batch], list[Batch]]
) -> None:
    policy = Policy.parse(text)
    one, other = (_outcome(batches, policy) for batches in split)
    assert one == other
