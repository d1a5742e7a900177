"""How many refused rows are too many."""

import pytest

from holdfast.sink.errors import TooManyRefused
from holdfast.sink.rows.quarantine_limit import QuarantineLimit


@pytest.mark.parametrize(
    ("quarantined", "of", "exceeded"),
    [
        (0, 0, False),
        (999, 999, False),  # a small batch may be bad as a whole
        (500, 1_000, False),
        (501, 1_000, True),
        (100_000, 1_000_000, False),
        (100_001, 1_000_000, True),
    ],
)
def test_default_limit_is_half_of_a_large_batch_and_a_hundred_thousand_rows(
    quarantined: int, of: int, exceeded: bool
) -> None:
    assert QuarantineLimit().exceeded(quarantined, of) is exceeded


def test_no_refused_row_at_all_can_be_the_limit() -> None:
    limit = QuarantineLimit(rows=0)
    limit.check("batch 1", 0, 5)
    with pytest.raises(TooManyRefused):
        limit.check("batch 1", 1, 5)


def test_message_has_the_counts_the_limit_and_the_way_out() -> None:
    with pytest.raises(TooManyRefused) as raised:
        QuarantineLimit().check("stream 'payouts': batch 7", 1_600, 2_000)
    message = str(raised.value)
    assert message.startswith("stream 'payouts': batch 7: 1,600 of its 2,000 rows were refused")
    assert "100,000 rows or 50% of a batch of 1,000 or more" in message
    assert "nothing is lost" in message
    assert "`holdfast job run --refused-rows`" in message


@pytest.mark.parametrize(
    "wrong", [{"rows": -1}, {"share": 1.5}, {"share": -0.1}, {"share_from": -1}]
)
def test_limit_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected rows >= 0"):
        QuarantineLimit(**wrong)  # type: ignore[arg-type]  # on purpose
