"""Silence closes windows: runs with an idle clock against the reference, and what it promises."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from holdfast.deploy.local.demo.reference import Reference
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.state import GroupState
from tests.support.job.exposure_runs import apply, plain
from tests.support.job.idle_runs import IdleRun, idle_runs, played

POLICY = 'version = "v1"\n[[default]]\nlimit_minor = 60\nrelease_level_minor = 20\n'


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Reference]:
    """Make a reference of `POLICY`."""
    path: Path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY)
    return lambda: Reference(path)


@pytest.mark.rest
@given(idle_runs(prompt=False))
@settings(max_examples=150, deadline=None)
def test_batches_at_the_watermarks_of_the_idle_clock_equal_the_reference(
    reference: Callable[[], Reference], run: IdleRun
) -> None:
    naive, policy, state = reference(), Policy.parse(POLICY), GroupState.empty()
    for each in played(run):
        state, output = apply(state, each.batch, policy, run.settings)
        assert plain(output) == naive.batch(list(each.batch.rows), each.batch.watermark)
    # After a long silence every window is closed, and no hold is left.
    assert state == GroupState.empty()


@given(idle_runs(prompt=False))
@settings(max_examples=100, deadline=None)
def test_the_watermark_never_moves_back_and_follows_the_clock_while_nothing_comes(
    run: IdleRun,
) -> None:
    batches = played(run)
    clocks, newest = run.clocks, 0
    known = [each.batch.watermark or 0 for each in batches]
    assert known == sorted(known)
    for each, reached in zip(batches, [*known[1:], known[-1]], strict=True):
        newest = max([newest, *(row.occurred_at_us for row in each.batch.rows)])
        of_tick = each.at - clocks.timeout - clocks.delay if each.tick else 0
        assert of_tick <= reached
        assert reached <= max(each.batch.watermark or 0, newest - clocks.delay, of_tick)
    assert known[-1] >= run.until - 3 * clocks.timeout - 2 * clocks.interval - clocks.delay


@pytest.mark.rest
@given(idle_runs(prompt=True))
@settings(max_examples=150, deadline=None)
def test_the_idle_clock_makes_no_event_late_that_arrives_within_the_delay(run: IdleRun) -> None:
    policy, state = Policy.parse(POLICY), GroupState.empty()
    for each in played(run):
        state, output = apply(state, each.batch, policy, run.settings)
        assert not output.late.num_rows
        for row in each.batch.rows:
            assert (each.batch.watermark or 0) <= row.occurred_at_us
