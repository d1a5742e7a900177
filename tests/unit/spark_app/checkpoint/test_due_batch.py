"""The batch without rows that a moved watermark calls for, also after a restart."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import Event
from holdfast.spark_app.checkpoint.due_batch import due_plan
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from tests.support.job.exposure import DELAY, Batch, apply, events, moments, plain, policies

PLAN = 'v1\n{"batchWatermarkMs":5000,"batchTimestampMs":7,"conf":{"a":"b"}}\n{"logOffset":3}\n-'
Triggers = Sequence[Sequence[Event]]


def _commit(watermark_ms: int) -> str:
    return "v2\n" + json.dumps({"nextBatchWatermarkMs": watermark_ms})


def test_due_plan_reads_nothing_at_the_next_watermark() -> None:
    planned = due_plan(PLAN, _commit(5001), 9)
    assert planned is not None
    header, described, *sources = planned.splitlines()
    assert (header, sources) == ("v1", ['{"logOffset":3}', "-"])
    assert json.loads(described) == {
        "batchWatermarkMs": 5001,
        "batchTimestampMs": 9,
        "conf": {"a": "b"},
    }
    assert due_plan(planned, _commit(5001), 9) is None
    assert due_plan(PLAN, _commit(5000), 9) is None


def _played(triggers: Triggers, ends: frozenset[int]) -> list[Batch]:
    """Play Spark, and the job that is ended after the commits of some batches and starts again.

    Spark knows the plan of the batch before, and runs a batch without rows at a moved watermark,
    unless it has started since; then the job plans that batch. A trigger without rows has no new
    data.
    """
    plan, commit, newest_ms, knows = "", "", 0, False
    done: list[Batch] = []

    def run(planned: str, rows: Sequence[Event]) -> None:
        nonlocal plan, commit, newest_ms, knows
        watermark_ms = int(json.loads(planned.splitlines()[1])["batchWatermarkMs"])
        done.append(Batch(rows, watermark_ms * 1000 or None))
        newest_ms = max([newest_ms, *(row.occurred_at_us // 1000 for row in rows)])
        next_ms = max(watermark_ms, newest_ms - DELAY // 1000)
        plan, commit, knows = planned, _commit(next_ms), len(done) - 1 not in ends

    for rows in triggers:
        next_ms = json.loads(commit.splitlines()[1])["nextBatchWatermarkMs"] if commit else 0
        if rows:
            run(_plan(next_ms), rows)
        elif knows and next_ms > json.loads(plan.splitlines()[1])["batchWatermarkMs"]:
            run(_plan(next_ms), [])
        elif not knows and plan and (due := due_plan(plan, commit, 0)) is not None:
            run(due, [])
    return done


def _plan(watermark_ms: int) -> str:
    described = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 0}
    return f'v1\n{json.dumps(described)}\n{{"logOffset":0}}'


@st.composite
def _triggers(draw: st.DrawFn) -> Triggers:
    """Rows of a clock that moves on, and silences in between."""
    results: list[list[Event]] = []
    for time in sorted(draw(st.lists(moments(0, 90), min_size=1, max_size=12))):
        results.append([draw(events(occurred_at_us=st.just(time)))])
        results += [[]] * draw(st.sampled_from([0, 0, 1, 2]))
    return [*results, [], []]


def _outcome(batches: Sequence[Batch], policy: Policy) -> list[Any]:
    state, found = GroupState.empty(), []
    for batch in batches:
        state, output = apply(state, batch, policy, Settings())
        found.append(plain(output))
    return found


@pytest.mark.rest
@given(policies(), _triggers(), st.frozensets(st.integers(0, 40)))
@settings(max_examples=150, deadline=None)
def test_decisions_do_not_depend_on_where_the_job_was_ended(
    text: str, triggers: Triggers, ends: frozenset[int]
) -> None:
    policy = Policy.parse(text)
    undisturbed = _played(triggers, frozenset())
    assert _played(triggers, ends) == undisturbed
    assert _outcome(_played(triggers, ends), policy) == _outcome(undisturbed, policy)
