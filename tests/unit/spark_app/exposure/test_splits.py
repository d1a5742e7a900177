"""Other micro-batch boundaries meet the same windows and the same decisions."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.local.demo.reference import Event
from spark_app.exposure.policy import Policy
from spark_app.exposure.settings import Settings
from spark_app.exposure.state import GroupState
from tests.support.exposure_runs import (
    DELAY,
    START,
    WINDOW,
    Batch,
    apply,
    events,
    moments,
    plain,
    policies,
)

END = START + 40 * WINDOW


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[Batch], list[Batch]]:
    """The same arrivals, cut in two ways; no row comes after the end of its window in either.

    The watermark is the newest time of *earlier* batches minus the delay, so it is enough that no
    row is older than another one before it by more than the delay. Ids are unique but for exact
    copies, which is what the source promises.
    """
    times = sorted(draw(st.lists(moments(0, 240), max_size=40)))
    jitter = [draw(st.integers(-DELAY // 2, DELAY // 2)) for _ in times]
    arrivals = []
    for number, (time, late) in enumerate(zip(times, jitter, strict=True)):
        columns = {"event_id": st.just(f"e{number}"), "occurred_at_us": st.just(time + late)}
        arrivals += [draw(events(**columns))] * draw(st.sampled_from([1, 1, 1, 2]))
    return _cut(draw, arrivals), _cut(draw, arrivals)


def _cut(draw: st.DrawFn, arrivals: Sequence[Event]) -> list[Batch]:
    places = draw(st.lists(st.integers(0, len(arrivals)), max_size=10))
    edges = [0, *sorted(places), len(arrivals)]
    batches = []
    for begin, end in pairwise(edges):
        newest = max((row.occurred_at_us for row in arrivals[:begin]), default=None)
        batches.append(Batch(arrivals[begin:end], None if newest is None else newest - DELAY))
    return [*batches, Batch([], END)]


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


@given(policies(), splits())
@settings(max_examples=100, deadline=None)
def test_cutting_a_stream_elsewhere_changes_no_window_and_no_decision(
    text: str, split: tuple[list[Batch], list[Batch]]
) -> None:
    policy = Policy.parse(text)
    one, other = (_outcome(batches, policy) for batches in split)
    assert one == other
