from dataclasses import replace

import pytest

from sink.contract.exits import CommandError
from spark_app.checkpoint import Shape, _parse
from spark_app.exposure.policy import Policy
from spark_app.formats import Format
from spark_app.job import Job

POLICY = Policy.parse('version = "v1"\n[[default]]\nlimit_minor = 100\nrelease_level_minor = 100\n')
SHAPE = Shape.of(Job("/events", Format.JSON, "/checkpoint", "payouts", POLICY, key_groups=16))


def test_what_is_kept_is_what_is_compared() -> None:
    assert SHAPE.differences(_parse(SHAPE.to_json(), "/checkpoint")) == []


def test_a_difference_is_named_by_its_option() -> None:
    other = replace(SHAPE, key_groups=64, watermark_delay_us=60_000_000)
    assert other.differences(_parse(SHAPE.to_json(), "/checkpoint")) == [
        "--key-groups was 16, is 64",
        "--watermark-delay was 30s, is 60s",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": "1"}', "cannot be read"),
        ('{"version": 2}', "newer Holdfast"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        _parse(text, "/checkpoint")
