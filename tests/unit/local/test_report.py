"""The sentence at the end says what the numbers say, and the exit code follows it."""

from dataclasses import replace

import pytest

from holdfast.deploy.local.demo.report import Report, verdict
from holdfast.deploy.local.demo.words import money

KEPT = Report(
    events=30_000,
    decisions=200,
    entries=200,
    webhooks_sent=210,
    actions_applied=200,
    actions_lost=0,
    actions_repeated=0,
    actions_altered=0,
    out_of_order=0,
    duplicates_absorbed=10,
    unknown_outcomes=12,
    spark_kills=1,
    dispatcher_kills=1,
    quarantined=10,
    quarantined_expected=10,
    late=5,
    future_dated=3,
    duplicates_in_stream=40,
    held_at_the_end=0,
    seconds=60.0,
    story=(),
)


def test_success_is_reported_in_one_sentence() -> None:
    assert KEPT.kept
    assert "nothing lost, nothing repeated" in verdict(KEPT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions_lost": 2}, "2 lost"),
        ({"actions_repeated": 1}, "1 repeated"),
        ({"out_of_order": 3}, "3 out of order"),
        ({"actions_altered": 4}, "4 altered"),
        ({"quarantined": 8}, "2 quarantined or accepted by mistake"),
        ({"spark_kills": 0}, "Spark was not killed at the planned point"),
        ({"dispatcher_kills": 0}, "the dispatcher was not killed at the planned point"),
    ],
)
def test_each_breach_is_named_and_fails_the_run(change: dict[str, int], said: str) -> None:
    broken = replace(KEPT, **change)
    assert not broken.kept
    assert verdict(broken).endswith(f": {said}.")


def test_money_is_written_as_people_write_it() -> None:
    assert money(8_500_000) == "$85,000"
    assert money(-5, "EUR") == "-EUR 0.05"
