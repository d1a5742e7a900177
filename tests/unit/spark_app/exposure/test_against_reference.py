"""The step and the naive reference, written independently from the rules, agree row for row."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import Reference
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import StepOutput, next_timer_us, step
from tests.support.job.exposure_runs import Batch, Run, apply, arrow, plain, runs
from tests.support.job.stored_state import content

MakeReference = Callable[[Run], Reference]


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> MakeReference:
    """Make a reference for a run."""
    path = tmp_path_factory.mktemp("policy") / "policy.toml"

    def make(run: Run) -> Reference:
        path.write_text(run.policy)
        return Reference(path, late_cutoff_us=run.settings.late_cutoff_us)

    return make


@given(runs())
@settings(max_examples=200, deadline=None)
def test_every_batch_of_a_run_equals_the_reference(reference: MakeReference, run: Run) -> None:
    naive, policy, state = reference(run), Policy.parse(run.policy), GroupState.empty()
    for batch in run.batches:
        state, output = apply(state, batch, policy, run.settings)
        assert plain(output) == naive.batch(list(batch.rows), batch.watermark)


@given(runs(), st.randoms(use_true_random=False), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_order_and_chunks_of_rows_do_not_matter(run: Run, random: Random, chunks: int) -> None:
    policy = Policy.parse(run.policy)
    one, other = GroupState.empty(), GroupState.empty()
    for batch in run.batches:
        rows = arrow(random.sample(batch.rows, len(batch.rows)), chunks=chunks)
        one, expected = apply(one, batch, policy, run.settings)
        other, got = step(other, rows, batch.watermark, policy, run.settings)
        assert got == expected
        assert content(other) == content(one)


@given(runs())
@settings(max_examples=50, deadline=None)
def test_timer_tells_exactly_when_a_step_without_rows_does_something(run: Run) -> None:
    policy, state = Policy.parse(run.policy), GroupState.empty()
    for batch in run.batches:
        state, _ = apply(state, batch, policy, run.settings)
        due = next_timer_us(state, batch.watermark, run.settings)
        if due is None:
            assert not state.merchants.num_rows
            continue
        # At the same moment, everything that was due is done; until the next one, nothing is.
        for quiet in (batch.watermark, due - 1):
            assert apply(state, Batch([], quiet), policy, run.settings) == (
                state,
                StepOutput.empty(),
            )
        after, _ = apply(state, Batch([], due), policy, run.settings)
        assert after != state
