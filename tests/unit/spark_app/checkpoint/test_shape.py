"""What a checkpoint is begun with, and the policies that it records."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.files import parse
from holdfast.spark_app.checkpoint.policy_history import FILE as POLICY_FILE
from holdfast.spark_app.checkpoint.policy_history import VERSION as POLICY_VERSION
from holdfast.spark_app.checkpoint.policy_history import PolicyHistory
from holdfast.spark_app.checkpoint.shape import FILE, PINNED, VERSION, Shape
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.operator.job import Job
from holdfast.spark_app.runtime.launch import FIXED
from tests.support.job.exposure import at

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
def test_a_file_that_is_not_ours_is_refused_in_words(text: str, message: str) -> None:
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
