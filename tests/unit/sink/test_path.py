"""Which way the rows of a batch take."""

import pytest

from sink import OutboxSink
from sink.transaction.path import STAGED_BYTES, UNKNOWN_BYTES, PathChoice

DSN = "postgresql://app@db/holdfast"


@pytest.mark.parametrize(
    ("estimated", "before", "staged"),
    [
        (0, 0, False),
        (STAGED_BYTES - 1, STAGED_BYTES, False),
        (STAGED_BYTES, 0, True),
        (UNKNOWN_BYTES, 0, False),
        (UNKNOWN_BYTES, STAGED_BYTES - 1, False),
        (2**63 - 1, STAGED_BYTES, True),
    ],
)
def test_auto_goes_by_the_plan_and_else_by_the_batch_before(
    estimated: int, before: int, *, staged: bool
) -> None:
    choice = PathChoice("auto", rows_in_driver=False)
    choice.record(before)
    assert choice.is_staged(lambda: estimated) is staged


def test_path_that_is_set_asks_for_no_estimate() -> None:
    def never() -> int:
        raise AssertionError

    assert PathChoice("staged", rows_in_driver=False).is_staged(never)
    assert not PathChoice("driver", rows_in_driver=False).is_staged(never)
    assert not PathChoice("auto", rows_in_driver=True).is_staged(never)


def test_staged_path_is_refused_where_somebody_wants_the_rows_in_the_driver() -> None:
    for wish in ({"select": lambda table: table}, {"also": lambda *_: None}):
        with pytest.raises(ValueError, match="leave both out, or use path='driver'"):
            OutboxSink(DSN, stream="payouts", path="staged", **wish)


def test_path_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of auto, driver, staged"):
        OutboxSink(DSN, stream="payouts", path="fast")  # type: ignore[arg-type]
