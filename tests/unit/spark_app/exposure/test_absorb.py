"""Which rows count: duplicates, late and future-dated rows, and exact sums."""

import pytest

from holdfast.spark_app.exposure.errors import ExposureOverflow, RowsError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import step
from tests.support.job.exposure import FIFTY_THOUSAND, Group, at, row, table

MOST = 10**15


def test_rows_add_up_in_the_window_of_their_own_time() -> None:
    group = Group().batch(
        None,
        row("a", "12:00", 5),
        row("b", "12:14:59.999999", -7),
        row("c", "12:15", 11),
        row("d", "12:00", 13, "other"),
    )
    assert group.windows == [
        ("m", "12:15", 0, -2),
        ("m", "12:30", 0, 11),
        ("other", "12:15", 0, 13),
    ]


def test_repeated_id_in_one_batch_counts_once() -> None:
    group = Group().batch(None, row("a", "12:00", 5), row("a", "12:00", 5))
    assert group.windows == [("m", "12:15", 0, 5)]
    assert group.refused == [("duplicate", "a")]


def test_of_copies_that_differ_the_first_in_row_order_counts() -> None:
    in_order = [
        row("a", "12:05", 9, type="b"),
        row("a", "12:05", 2, type="c", currency="AAA"),
        row("a", "12:05", 2, type="c"),
        row("a", "12:05", 3, type="c"),
        row("a", "12:07", 1, type="a"),
    ]
    group = Group().batch(None, *reversed(in_order))
    assert group.windows == [("m", "12:15", 0, 9)]
    got = group.output.late.select(["amount_minor", "currency"]).to_pylist()
    assert got == [{k: r[k] for k in ("amount_minor", "currency")} for r in in_order[1:]]


def test_id_of_any_window_in_state_is_a_duplicate() -> None:
    group = Group().batch(None, row("a", "12:00", 5), row("b", "12:20", 1))
    group.batch("12:16", row("a", "12:20", 100), row("b", "12:01", 100))
    assert group.refused == [("duplicate", "b"), ("duplicate", "a")]
    assert group.windows == [("m", "12:15", 1, 5), ("m", "12:30", 0, 1)]


def test_id_of_another_merchant_is_no_duplicate() -> None:
    group = Group().batch(None, row("a", "12:00", 5), row("b", "12:00", 5, "other"))
    group.batch(None, row("a", "12:00", 5, "other"), row("b", "12:00", 5))
    assert group.refused == []
    assert group.ids == ["a", "a", "b", "b"]


def test_id_of_a_window_that_this_batch_forgets_is_still_a_duplicate() -> None:
    group = Group().batch(None, row("a", "12:00", 5))
    group.batch("12:17", row("a", "12:20", 5))
    assert group.refused == [("duplicate", "a")]
    assert group.windows == []


def test_id_of_a_forgotten_window_is_new_again() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:17")
    group.batch("12:17", row("a", "12:20", 5))
    assert group.refused == []
    assert group.windows == [("m", "12:30", 0, 5)]


def test_row_is_late_from_the_cutoff_on_and_not_a_moment_before() -> None:
    group = Group()
    group.batch("12:16:59.999", row("in_time", "12:14", 1))
    assert group.refused == []
    group.batch("12:17", row("too_late", "12:14", 1))
    assert group.refused == [("late", "too_late")]
    assert group.output.late["watermark"].cast("int64").to_pylist() == [at("12:17")]


def test_late_row_is_not_absorbed_so_a_later_copy_counts() -> None:
    group = Group().batch("12:17", row("a", "12:14", 5))
    assert group.merchants == {}
    group.batch("12:17", row("a", "12:16", 5))
    assert group.windows == [("m", "12:30", 0, 5)]


def test_late_row_does_not_take_the_id_from_a_copy_in_the_same_batch() -> None:
    group = Group().batch("12:17", row("a", "12:14", 5), row("a", "12:16", 7))
    assert group.refused == [("late", "a")]
    assert group.windows == [("m", "12:30", 0, 7)]


def test_late_copy_of_an_absorbed_id_is_a_duplicate() -> None:
    group = Group().batch("12:17", row("a", "12:16", 5))
    group.batch("12:17", row("a", "12:14", 5))
    assert group.refused == [("duplicate", "a")]


def test_future_dated_row_is_recorded_and_nothing_else() -> None:
    group = Group().batch(None, row("a", "12:01", 5, future_dated=True))
    assert group.refused == [("future_dated", "a")]
    assert group.output.late["watermark"].to_pylist() == [None]
    assert (group.windows, group.merchants, group.ids) == ([], {}, [])


def test_future_dated_copy_neither_takes_an_id_nor_is_a_duplicate() -> None:
    group = Group().batch(
        None, row("a", "12:01", 5, future_dated=True), row("a", "12:02", 7), row("b", "12:03", 1)
    )
    assert group.refused == [("future_dated", "a")]
    assert group.windows == [("m", "12:15", 0, 8)]
    group.batch(None, row("b", "12:03", 1, future_dated=True))
    assert group.refused == [("future_dated", "b")]


def test_refused_rows_come_by_merchant_and_in_row_order() -> None:
    late = [row(i, t, 1, m) for m in "ba" for t in ("12:02", "12:01") for i in ("y", "x")]
    group = Group().batch("13:00", *late)
    got = group.output.late
    assert list(zip(got["merchant_id"].to_pylist(), got["event_id"].to_pylist(), strict=True)) == [
        (m, i) for m in "ab" for i in "xyxy"
    ]
    assert got["occurred_at"].cast("int64").to_pylist() == 2 * [
        at(t) for t in ("12:01", "12:01", "12:02", "12:02")
    ]


def test_sum_at_the_end_of_64_bits_is_exact() -> None:
    amounts = [MOST] * 9223 + [(2**63 - 1) - 9223 * MOST]
    group = Group().batch(None, *(row(f"e{i}", "12:00", a) for i, a in enumerate(amounts)))
    assert group.windows == [("m", "12:15", 0, 2**63 - 1)]
    group.batch(None, *(row(f"f{i}", "12:00", -a) for i, a in enumerate(amounts)))
    assert group.windows == [("m", "12:15", 0, 0)]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("beyond", [1, 2, MOST])
def test_sum_beyond_64_bits_is_refused_and_changes_nothing(sign: int, beyond: int) -> None:
    group = Group().batch(None, *(row(f"e{i}", "12:00", sign * MOST) for i in range(9223)))
    before = group.state
    rest = (2**63 - 1) - 9223 * MOST
    with pytest.raises(ExposureOverflow, match=r"merchant m in .* 2026-11-02T12:15:00Z"):
        group.batch(None, row("last", "12:00", sign * (rest + beyond)))
    assert group.state is before


def test_sum_that_leaves_64_bits_only_on_the_way_is_fine() -> None:
    plus = [row(f"p{i}", "12:00", MOST) for i in range(9300)]
    minus = [row(f"q{i}", "12:01", -MOST) for i in range(9300)]
    assert Group().batch(None, *plus, *minus).windows == [("m", "12:15", 0, 0)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (table(row("a", "12:00", 1)).drop_columns("currency"), "no column currency"),
        (table({**row("a", "12:00", 1), "merchant_id": None}), "merchant_id holds a null"),
        (
            table(row("a", "12:00", 1)).set_column(4, "amount_minor", [[1.0]]),
            "amount_minor is double, expected int64",
        ),
    ],
)
def test_rows_of_another_shape_are_refused_in_words(rows: object, said: str) -> None:
    with pytest.raises(RowsError, match=said):
        step(GroupState.empty(), rows, None, Policy.parse(FIFTY_THOUSAND), Settings())
