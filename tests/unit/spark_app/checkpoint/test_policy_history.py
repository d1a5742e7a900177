"""The policies of a checkpoint: which one is in force, and which version a window records."""

import json

import numpy as np
import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.files import parse
from holdfast.spark_app.checkpoint.policy_history import FILE, VERSION, PolicyHistory
from holdfast.spark_app.exposure.policy import Policy
from tests.support.job.exposure import at

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
    kept = parse(HISTORY.to_json(), FILE, VERSION, "/checkpoint")
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


def test_going_back_before_anything_was_decided_by_it_is_another_change() -> None:
    history = PolicyHistory.begin(V1).followed_by(V2, at("12:15")).followed_by(V1, at("12:20"))
    versions = history.policy.versions_at(np.array([at("12:15"), at("12:30")]))
    assert versions.to_pylist() == ["v1", "v1"]
    with pytest.raises(CommandError, match="decided already"):
        HISTORY.followed_by(V1, at("12:45"))


def test_a_version_names_one_content_for_ever() -> None:
    said = "The policy's content has changed, and its version is v3 as before: .* Give it a version"
    with pytest.raises(CommandError, match=said):
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
