"""A checkpoint's shape, its positions in topics, and the batch that is due after it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import Event
from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.due_batch import due_plan
from holdfast.spark_app.checkpoint.files import CheckpointFiles, parse
from holdfast.spark_app.checkpoint.policy_history import FILE as POLICY_FILE
from holdfast.spark_app.checkpoint.policy_history import VERSION as POLICY_VERSION
from holdfast.spark_app.checkpoint.policy_history import PolicyHistory
from holdfast.spark_app.checkpoint.shape import FILE, PINNED, VERSION, Shape
from holdfast.spark_app.checkpoint.topic_positions import (
    gaps,
    passed,
    positions,
    require_records,
    to_line,
)
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.input.broker import Broker, Partition, Range
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.sources import Kafka
from holdfast.spark_app.operator.job import Job
from holdfast.spark_app.runtime.launch import FIXED
from tests.support.examples import examples
from tests.support.job.exposure import DELAY, Batch, apply, at, events, moments, plain, policies

P0, P1 = Partition("pay", 0), Partition("pay", 1)
SOURCE = Kafka("pay", cluster_id="c", topic_ids=(("pay", "one"),))
SAME = {"pay": "one"}


def _gaps(at: dict[Partition, int], available: dict[Partition, Range], ids: dict[str, str]) -> Any:
    return [(gap.partition, gap.after) for gap in gaps(SOURCE, ids, at, available)]


def test_a_position_that_the_topic_still_has_is_no_gap() -> None:
    for position in (5, 7, 9):
        assert _gaps({P0: position}, {P0: Range(5, 9)}, SAME) == []


@pytest.mark.parametrize(
    ("at", "available", "ids", "after"),
    [
        ({P0: 4}, {P0: Range(5, 9)}, SAME, [(P0, 5)]),
        ({P0: 10}, {P0: Range(5, 9)}, SAME, [(P0, 9)]),
        ({P0: 7}, {P0: Range(0, 20)}, {"pay": "two"}, [(P0, 0)]),
        ({P0: 7}, {P0: Range(0, 0)}, {"pay": "two"}, [(P0, 0)]),
        ({P0: 7}, {}, {}, [(P0, None)]),
        ({P0: 7}, {P0: Range(0, 9), P1: Range(0, 3)}, SAME, []),
        ({P0: 7}, {P0: Range(0, 9), P1: Range(2, 3)}, SAME, [(P1, 2)]),
    ],
    ids=["retention", "truncated", "anew", "anew-empty", "deleted", "added", "added-late"],
)
def test_each_way_to_lose_records_is_a_gap(
    at: dict[Partition, int],
    available: dict[Partition, Range],
    ids: dict[str, str],
    after: list[tuple[Partition, int | None]],
) -> None:
    assert _gaps(at, available, ids) == after
    moved = passed(at, gaps(SOURCE, ids, at, available))
    assert _gaps(moved, available, SAME) == []


@given(
    st.dictionaries(
        st.builds(Partition, st.sampled_from(["pay", "a.b"]), st.integers(0, 9)),
        st.integers(0, 2**62),
    )
)
def test_a_line_of_a_plan_is_read_as_it_was_written(at: dict[Partition, int]) -> None:
    assert positions(to_line(at)) == at


@pytest.mark.parametrize(
    "line", ["-", "3", "[]", '{"pay":5}', '{"pay":{"x":1}}', '{"logOffset":1}']
)
def test_another_line_is_not_a_position(line: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        positions(line)


@dataclass
class _Files:
    """The files of a checkpoint, in memory."""

    texts: dict[str, str]
    checkpoint: str = "/checkpoint"
    written: list[str] = field(default_factory=list)

    def read(self, name: str) -> str | None:
        return self.texts.get(name)

    def replace(self, name: str, text: str) -> None:
        self.texts[name] = text
        self.written.append(name)

    def remove(self, name: str) -> None:
        self.texts.pop(name, None)

    def damaged(self, name: str) -> CommandError:
        return CommandError(f"{name} is damaged", code="damaged")


@dataclass
class _Broker:
    ids: dict[str, str]
    there: dict[Partition, Range]

    def topic_ids(self, _source: Kafka) -> dict[str, str]:
        return self.ids

    def ranges(self, _source: Kafka) -> dict[Partition, Range]:
        return self.there


def _plan(at: dict[Partition, int]) -> str:
    return f"v1\n{json.dumps({'batchWatermarkMs': 0})}\n{to_line(at)}"


def _require(files: _Files, broker: _Broker, newest: int, committed: int, accept: bool) -> Kafka:
    from holdfast.spark_app.checkpoint.files import Planned

    planned = None if newest < 0 else Planned(newest, 0, ())
    [found] = require_records(
        cast("CheckpointFiles", files),
        (SOURCE,),
        cast("Broker", broker),
        planned,
        None if committed < 0 else committed,
        accept=accept,
    )
    assert isinstance(found, Kafka)
    return found


def test_gap_is_refused_unless_a_person_accepts_it(capsys: pytest.CaptureFixture[str]) -> None:
    files = _Files({"offsets/0": _plan({P0: 3})})
    broker = _Broker(SAME, {P0: Range(5, 9)})
    with pytest.raises(CommandError) as raised:
        _require(files, broker, 0, 0, accept=False)
    assert "the offsets 3 to 4 are gone" in str(raised.value)
    assert files.written == []
    assert _require(files, broker, 0, 0, accept=True) == SOURCE
    assert "the offsets 3 to 4 are gone" in capsys.readouterr().err
    assert files.texts == {"offsets/0": _plan({P0: 5})}
    _require(files, broker, 0, 0, accept=False)


def test_a_batch_that_was_planned_reads_what_is_left_of_it() -> None:
    files = _Files({"offsets/0": _plan({P0: 3}), "offsets/1": _plan({P0: 7, P1: 1})})
    _require(files, _Broker(SAME, {P0: Range(5, 9), P1: Range(0, 1)}), 1, 0, accept=True)
    assert files.texts == {"offsets/0": _plan({P0: 5}), "offsets/1": _plan({P0: 7, P1: 1})}
    _require(files, _Broker(SAME, {P0: Range(8, 9), P1: Range(0, 1)}), 1, 0, accept=True)
    assert files.texts == {"offsets/0": _plan({P0: 8}), "offsets/1": _plan({P0: 8, P1: 1})}


def test_batch_planned_beyond_the_end_is_refused_or_ends_there() -> None:
    plans = {"offsets/0": _plan({P0: 3}), "offsets/1": _plan({P0: 7, P1: 1})}
    files = _Files(dict(plans))
    broker = _Broker(SAME, {P0: Range(0, 5)})
    with pytest.raises(CommandError) as raised:
        _require(files, broker, 1, 0, accept=False)
    assert "ends at offset 5, and a batch was to read it up to 7" in str(raised.value)
    assert "partition 1, is gone" in str(raised.value)
    assert files.texts == plans
    _require(files, broker, 1, 0, accept=True)
    assert files.texts == {"offsets/0": _plan({P0: 3}), "offsets/1": _plan({P0: 5})}
    _require(files, broker, 1, 0, accept=False)
    _require(_Files(dict(plans)), broker, 1, 1, accept=True)


def test_recreated_topic_is_read_from_its_start(capsys: pytest.CaptureFixture[str]) -> None:
    files = _Files({"offsets/0": _plan({P0: 3}), "offsets/1": _plan({P0: 7})})
    broker = _Broker({"pay": "two"}, {P0: Range(0, 50)})
    result = _require(files, broker, 1, 0, accept=True)
    assert result.topic_ids == (("pay", "two"),)
    assert files.texts == {"offsets/0": _plan({P0: 0}), "offsets/1": _plan({P0: 0})}
    assert "made again under its name" in capsys.readouterr().err


def test_topic_start_is_checked_before_its_first_batch() -> None:
    initial = "\0v1\n" + to_line({P0: 3})
    files = _Files({"sources/0/0": initial})
    gone = _Broker(SAME, {P0: Range(5, 9)})
    with pytest.raises(CommandError):
        _require(files, gone, -1, -1, accept=False)
    _require(files, gone, -1, -1, accept=True)
    assert files.texts == {}
    files = _Files({"sources/0/0": initial, "offsets/0": _plan({P0: 7})})
    _require(files, gone, 0, -1, accept=True)
    assert files.texts == {"sources/0/0": "\0v1\n" + to_line({P0: 5}), "offsets/0": _plan({P0: 7})}


def test_a_damaged_line_is_named() -> None:
    files = _Files({"offsets/0": "v1\n{}\nnothing"})
    with pytest.raises(CommandError, match="offsets/0"):
        _require(files, _Broker(SAME, {}), 0, 0, accept=False)


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
            run(_plan_due_batch(next_ms), rows)
        elif knows and next_ms > json.loads(plan.splitlines()[1])["batchWatermarkMs"]:
            run(_plan_due_batch(next_ms), [])
        elif not knows and plan and (due := due_plan(plan, commit, 0)) is not None:
            run(due, [])
    return done


def _plan_due_batch(watermark_ms: int) -> str:
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
@settings(max_examples=examples(150), deadline=None)
def test_decisions_do_not_depend_on_where_the_job_was_ended(
    text: str, triggers: Triggers, ends: frozenset[int]
) -> None:
    policy = Policy.parse(text)
    undisturbed = _played(triggers, frozenset())
    assert _played(triggers, ends) == undisturbed
    assert _outcome(_played(triggers, ends), policy) == _outcome(undisturbed, policy)


POLICY = Policy.parse('version = "v1"\n[[default]]\nlimit_minor = 100\nrelease_level_minor = 100\n')
SHAPE = Shape.of(Job(("/events",), Format.JSON, "/checkpoint", "payouts", POLICY, key_groups=16))


BEGUN = SHAPE.to_json("file:/checkpoint")


def _kept(text: str = BEGUN) -> dict[str, Any]:
    return parse(text, FILE, VERSION, "/checkpoint")


def test_what_is_kept_is_what_is_compared() -> None:
    SHAPE.require(_kept(), "/checkpoint")
    assert _kept()["spark"] == {name: FIXED[name] for name in PINNED}


def test_a_difference_is_named_by_its_option() -> None:
    other = replace(SHAPE, key_groups=64, watermark_delay_us=60_000_000)
    with pytest.raises(CommandError) as raised:
        other.require(_kept(), "/checkpoint")
    message = str(raised.value)
    assert "begun with other settings" in message
    assert "--key-groups was 16, is 64; --watermark-delay was 30s, is 60s." in message
    assert "`holdfast stream adopt`" in message


@pytest.mark.parametrize("name", PINNED)
def test_checkpoint_of_other_spark_settings_is_refused_by_name(name: str) -> None:
    kept = _kept()
    kept["spark"][name] = "something else"
    with pytest.raises(CommandError) as raised:
        SHAPE.require(kept, "/checkpoint")
    message = str(raised.value)
    assert f"{name} was something else, is {FIXED[name]}" in message
    assert "Nothing was read or written; run the version that wrote it" in message
    del kept["spark"][name]
    with pytest.raises(CommandError, match="was not set, is"):
        SHAPE.require(kept, "/checkpoint")


def test_state_of_no_layout_is_not_taken_for_an_empty_one() -> None:
    kept = _kept()
    del kept["layout"]
    assert SHAPE.differences(kept) == []
    assert SHAPE.foreign(kept) == ["layout of the state was not set, is 2"]
    del kept["spark"]
    assert len(SHAPE.foreign(kept)) == 1 + len(SHAPE.spark)
    with pytest.raises(CommandError, match="another version of Holdfast"):
        SHAPE.require(kept, "/checkpoint")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": "1"}', "cannot be read"),
        ('{"version": 5}', "newer Holdfast"),
    ],
)
def test_foreign_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        _kept(text)


def test_new_checkpoint_gets_four_key_groups_a_partition_by_default() -> None:
    job = Job(("/events",), Format.JSON, "/checkpoint", "payouts", POLICY)
    assert Shape.of(job).key_groups == len(job.groups) == 8
    assert Shape.of(replace(job, partitions=8)).key_groups == 32
    assert Shape.of(replace(job, key_groups=5)).key_groups == 5


DEFAULT = "[[default]]\nlimit_minor = 100\nrelease_level_minor = 100\n"


def _policy(version: str, *more: tuple[str, int]) -> Policy:
    entries = "".join(
        f"[[default]]\nlimit_minor = {limit}\nrelease_level_minor = 0\n"
        f"effective_from = 2026-11-02T{since}:00Z\n"
        for since, limit in more
    )
    return Policy.parse(f'version = "{version}"\n{DEFAULT}{entries}')


V1 = _policy("v1")
V2 = _policy("v2", ("12:30", 200))
V3 = _policy("v3", ("12:30", 200), ("13:00", 300))
HISTORY = PolicyHistory.begin(V1).followed_by(V2, at("12:19:30")).followed_by(V3, at("12:45"))


def test_a_window_records_the_version_in_force_at_its_end() -> None:
    ends = np.array([at(clock) for clock in ("00:15", "12:15", "12:30", "12:45", "13:00")])
    versions = HISTORY.policy.versions_at(ends)
    assert versions.to_pylist() == ["v1", "v1", "v2", "v2", "v3"]
    assert (HISTORY.policy.version, HISTORY.policy.first_version) == ("v3", "v1")


def test_a_policy_without_a_history_is_its_only_version() -> None:
    assert V1.versions_at(np.array([at("12:15")])).to_pylist() == ["v1"]
    assert V1.versions_at(np.array([], np.int64)).to_pylist() == []
    assert V1.first_version == "v1"


def test_what_is_kept_is_what_comes_back() -> None:
    kept = parse(HISTORY.to_json(), POLICY_FILE, POLICY_VERSION, "/checkpoint")
    assert PolicyHistory.from_json(kept) == HISTORY
    assert [entry["since_us"] for entry in kept["policies"]] == [None, at("12:19:30"), at("12:45")]
    assert kept["policies"][1]["toml"] == V2.text
    assert json.loads(HISTORY.to_json())["policies"][2]["version"] == "v3"


def test_the_same_policy_again_adds_nothing() -> None:
    assert HISTORY.followed_by(V3, at("14:00")) is HISTORY
    reordered = Policy.parse(f"# as before\n{V3.text}")
    assert HISTORY.followed_by(reordered, at("14:00")) is HISTORY


def test_two_changes_at_one_watermark_count_as_the_last() -> None:
    history = PolicyHistory.begin(V1).followed_by(V2, at("12:15")).followed_by(V3, at("12:15"))
    versions = history.policy.versions_at(np.array([at("12:15"), at("12:30")]))
    assert versions.to_pylist() == ["v1", "v3"]


def test_change_reverted_before_any_decision_is_a_new_change() -> None:
    history = PolicyHistory.begin(V1).followed_by(V2, at("12:15")).followed_by(V1, at("12:20"))
    versions = history.policy.versions_at(np.array([at("12:15"), at("12:30")]))
    assert versions.to_pylist() == ["v1", "v1"]
    with pytest.raises(CommandError, match="decided already"):
        HISTORY.followed_by(V1, at("12:45"))


def test_a_version_names_one_content_for_ever() -> None:
    message = (
        "The policy's content has changed, and its version is v3 as before: .* Give it a version"
    )
    with pytest.raises(CommandError, match=message):
        HISTORY.followed_by(_policy("v3", ("12:30", 200), ("14:00", 300)), at("12:45"))
    with pytest.raises(CommandError, match="its version is v1 as before"):
        HISTORY.followed_by(_policy("v1", ("12:30", 200), ("13:00", 300)), at("12:45"))


def test_a_refusal_is_one_line_that_says_what_was_not_touched() -> None:
    with pytest.raises(CommandError) as raised:
        PolicyHistory.begin(V1).followed_by(V2, at("12:30"))
    message = str(raised.value)
    assert message.endswith("Nothing was read or written.")
    assert "\n" not in message


def test_before_the_first_watermark_limits_may_be_anything() -> None:
    other = Policy.parse(V1.text.replace("v1", "v2").replace("100", "7"))
    history = PolicyHistory.begin(V1).followed_by(other, 0)
    assert history.policy.versions_at(np.array([at("12:15")])).to_pylist() == ["v2"]
