"""Whole runs: equal to the naive reference, also with an idle clock and other batch boundaries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import Event, Reference
from holdfast.spark_app.exposure.codec import decode_part, encode_part
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import StepOutput, next_timer_us, step
from holdfast.spark_app.lifecycle.idle_clock import IdleClock
from tests.support.examples import examples
from tests.support.job.exposure import (
    MINUTE,
    START,
    WINDOW,
    Batch,
    Run,
    apply,
    arrow,
    decisions,
    events,
    plain,
    policies,
    runs,
    splits,
)
from tests.support.job.stored_state import content

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MS = 1000
SECOND = 1000 * MS
LONG = WINDOW + 20 * MINUTE
"""A silence after which every window has ended, and every hold with it."""


@dataclass(frozen=True)
class Arrival:
    """Rows that become readable at a moment (microseconds)."""

    at: int
    rows: Sequence[Event]


@dataclass(frozen=True)
class Clocks:
    """Durations of a run, in microseconds."""

    interval: int
    timeout: int
    delay: int
    after: int
    """How long after a trigger the driver looks at the query."""


@dataclass(frozen=True)
class Trigger:
    """A batch, when it was planned, and whether it read a tick."""

    at: int
    batch: Batch
    tick: bool


@dataclass(frozen=True)
class IdleRun:
    """Everything that a run depends on."""

    arrivals: list[Arrival]
    clocks: Clocks
    settings: Settings
    until: int
    """The end of the silence after the last arrival."""


@st.composite
def idle_runs(draw: st.DrawFn, *, prompt: bool) -> IdleRun:
    """Draw a run; `prompt`: no event arrives later than the watermark delay after it occurred."""
    timeout = draw(st.sampled_from([1, 2, 10])) * MINUTE
    interval = timeout // draw(st.sampled_from([2, 3, 5]))
    delay = draw(st.sampled_from([0, 30, 300])) * SECOND
    clocks = Clocks(interval, timeout, delay, draw(st.integers(0, interval // MS - 1)) * MS)
    lags = st.integers(0, delay)
    if not prompt:
        lags = st.one_of(lags, st.integers(0, 40 * MINUTE))
    now, arrivals, number = START, [], 0
    for _ in range(draw(st.integers(1, 6))):
        now += draw(st.sampled_from([0, 1, 20, 61, 5 * 60, 16 * 60, 40 * 60])) * SECOND
        now += draw(st.integers(0, 1000)) * MS
        rows = []
        for row in draw(st.lists(events(), min_size=1, max_size=5)):
            number += 1
            lag = draw(lags)
            rows.append(row._replace(event_id=f"e{number}", occurred_at_us=now - lag))
        arrivals.append(Arrival(now, rows))
    settings = Settings(watermark_delay_us=delay)
    return IdleRun(arrivals, clocks, settings, now + LONG + 3 * timeout + delay)


def played(run: IdleRun) -> list[Trigger]:
    """Play a run; returns its batches, those without rows that follow the watermark too."""
    clocks, waiting = run.clocks, list(run.arrivals)
    seconds, watermark, known = START / SECOND, None, None
    done: list[Trigger] = []
    written: list[int] = []
    clock = IdleClock(clocks.timeout / SECOND, written.append, lambda: seconds)
    for now in range(START, run.until, clocks.interval):
        rows = [row for arrival in waiting if arrival.at <= now for row in arrival.rows]
        waiting = [arrival for arrival in waiting if arrival.at > now]
        has_rows = bool(rows or known)
        if has_rows:
            done.append(Trigger(now, Batch(rows, watermark), tick=known is not None))
            reached = [row.occurred_at_us for row in rows]
            if known is not None and now - known <= clocks.timeout:
                reached.append(now - clocks.timeout)
            moved = max((at // MS * MS - clocks.delay for at in reached), default=None)
            if moved is not None and (watermark is None or moved > watermark):
                watermark = moved
                done.append(Trigger(now, Batch([], watermark), tick=False))
        seconds, known = (now + clocks.after) / SECOND, None
        status = {"isDataAvailable": has_rows, "message": "Waiting for next trigger"}
        clock.ask(cast("StreamingQuery", SimpleNamespace(status=status)))
        clock.observe(len(rows))
        if written:
            written.clear()
            known = now + clocks.after - clocks.interval
    return done


MakeReference = Callable[[Run], Reference]


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> MakeReference:
    """Make a reference for a run."""
    path = tmp_path_factory.mktemp("policy") / "policy.toml"

    def make(run: Run) -> Reference:
        path.write_text(run.policy)
        return Reference(path, late_cutoff_us=run.settings.late_cutoff_us)

    return make


@pytest.mark.rest
@given(runs(by_hand=True))
@settings(max_examples=examples(200), deadline=None)
def test_every_batch_of_a_run_equals_the_reference(reference: MakeReference, run: Run) -> None:
    naive, policy, state = reference(run), Policy.parse(run.policy), GroupState.empty()
    for batch in run.batches:
        # Through bytes, as the job keeps it between two batches.
        merchants = decode_part("merchants", encode_part("merchants", state.merchants))
        state, output = apply(replace(state, merchants=merchants), batch, policy, run.settings)
        assert plain(output) == naive.batch(list(batch.rows), batch.watermark, batch.by_hand)


@pytest.mark.rest
@given(runs(by_hand=True), st.randoms(use_true_random=False), st.integers(1, 5))
@settings(max_examples=examples(50), deadline=None)
def test_order_and_chunks_of_rows_do_not_matter(run: Run, random: Random, chunks: int) -> None:
    policy = Policy.parse(run.policy)
    one, other = GroupState.empty(), GroupState.empty()
    for batch in run.batches:
        rows = arrow(random.sample(batch.rows, len(batch.rows)), chunks=chunks)
        by_hand = decisions(random.sample(batch.by_hand, len(batch.by_hand)))
        one, expected = apply(one, batch, policy, run.settings)
        other, got = step(other, rows, batch.watermark, policy, run.settings, by_hand)
        assert got == expected
        assert content(other) == content(one)


@pytest.mark.rest
@given(runs(by_hand=True))
@settings(max_examples=examples(50), deadline=None)
def test_timer_is_set_exactly_when_an_empty_step_has_work(run: Run) -> None:
    policy, state = Policy.parse(run.policy), GroupState.empty()
    for batch in run.batches:
        state, _ = apply(state, batch, policy, run.settings)
        due = next_timer_us(state, batch.watermark, run.settings)
        if due is None:
            # Only what a person blocked for good waits for nothing.
            assert all(state.merchants["held"].to_pylist())
            assert state.merchants["hand_until"].null_count == state.merchants.num_rows
            continue
        # At the same moment, everything that was due is done; until the next one, nothing is.
        for quiet in (batch.watermark, due - 1):
            assert apply(state, Batch([], quiet), policy, run.settings) == (
                state,
                StepOutput.empty(),
            )
        after, _ = apply(state, Batch([], due), policy, run.settings)
        assert after != state


POLICY = 'version = "v1"\n[[default]]\nlimit_minor = 60\nrelease_level_minor = 20\n'


@pytest.fixture(scope="session")
def idle_reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Reference]:
    """Make a reference of `POLICY`."""
    path: Path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY)
    return lambda: Reference(path)


@pytest.mark.rest
@given(idle_runs(prompt=False))
@settings(max_examples=examples(150), deadline=None)
def test_idle_clock_equals_reference(idle_reference: Callable[[], Reference], run: IdleRun) -> None:
    naive, policy, state = idle_reference(), Policy.parse(POLICY), GroupState.empty()
    for each in played(run):
        state, output = apply(state, each.batch, policy, run.settings)
        assert plain(output) == naive.batch(list(each.batch.rows), each.batch.watermark)
    # After a long silence every window is closed, and no hold is left.
    assert state == GroupState.empty()


@pytest.mark.rest
@given(idle_runs(prompt=False))
@settings(max_examples=examples(100), deadline=None)
def test_watermark_never_moves_back_and_follows_the_clock_when_idle(run: IdleRun) -> None:
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
@settings(max_examples=examples(150), deadline=None)
def test_idle_clock_makes_no_event_within_the_delay_late(run: IdleRun) -> None:
    policy, state = Policy.parse(POLICY), GroupState.empty()
    for each in played(run):
        state, output = apply(state, each.batch, policy, run.settings)
        assert not output.late.num_rows
        for row in each.batch.rows:
            assert (each.batch.watermark or 0) <= row.occurred_at_us


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
@settings(max_examples=examples(100), deadline=None)
def test_other_cuts_change_nothing(text: str, split: tuple[list[Batch], list[Batch]]) -> None:
    policy = Policy.parse(text)
    one, other = (_outcome(batches, policy) for batches in split)
    assert one == other
