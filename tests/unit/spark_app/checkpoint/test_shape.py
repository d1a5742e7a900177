"""What a checkpoint is begun with, and the words for a start that does not fit it."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.files import parse
from holdfast.spark_app.checkpoint.shape import FILE, PINNED, VERSION, Shape
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.operator.job import Job
from holdfast.spark_app.runtime.launch import FIXED

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
def test_a_checkpoint_that_spark_wrote_by_another_setting_is_refused_by_its_name(name: str) -> None:
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
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": "1"}', "cannot be read"),
        ('{"version": 5}', "newer Holdfast"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        _kept(text)


def test_a_new_checkpoint_gets_four_key_groups_a_partition_unless_told_otherwise() -> None:
    job = Job(("/events",), Format.JSON, "/checkpoint", "payouts", POLICY)
    assert Shape.of(job).key_groups == len(job.groups) == 8
    assert Shape.of(replace(job, partitions=8)).key_groups == 32
    assert Shape.of(replace(job, key_groups=5)).key_groups == 5
