"""The step: which rows count, when windows are published, when holds begin and end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark_app.exposure.errors import ExposureOverflow, RowsError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState, by_owner
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
    group.batch(None, *(row("c", "12:00", 5, merchant) for merchant in ("m", "other", "m")))
    assert group.refused == [("duplicate", "c")]


def test_id_of_a_window_forgotten_in_this_batch_is_a_duplicate() -> None:
    group = Group().batch(None, row("a", "12:00", 5))
    group.batch("12:17", row("a", "12:20", 5))
    assert group.refused == [("duplicate", "a")]
    assert group.windows == []


def test_id_of_a_forgotten_window_is_new_again() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:17")
    group.batch("12:17", row("a", "12:20", 5))
    assert group.refused == []
    assert group.windows == [("m", "12:30", 0, 5)]


def test_row_is_late_exactly_from_the_cutoff() -> None:
    group = Group()
    group.batch("12:16:59.999", row("in_time", "12:14", 1))
    assert group.refused == []
    group.batch("12:17", row("too_late", "12:14", 1))
    assert (group.refused, group.emitted) == ([("late", "too_late")], [])
    assert group.output.late["watermark"].cast("int64").to_pylist() == [at("12:17")]


def test_late_row_is_not_absorbed_so_a_later_copy_counts() -> None:
    group = Group().batch("12:17", row("a", "12:14", 5))
    assert (group.merchants, group.emitted) == ({}, [])
    group.batch("12:17", row("a", "12:16", 5))
    assert group.windows == [("m", "12:30", 0, 5)]


def test_late_row_does_not_claim_the_id_of_a_copy_in_its_batch() -> None:
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
    ("rows", "message"),
    [
        (table(row("a", "12:00", 1)).drop_columns("currency"), "no column currency"),
        (table({**row("a", "12:00", 1), "merchant_id": None}), "merchant_id holds a null"),
        (
            table(row("a", "12:00", 1)).set_column(4, "amount_minor", [[1.0]]),
            "amount_minor is double, expected int64",
        ),
    ],
)
def test_rows_of_another_shape_are_refused(rows: object, message: str) -> None:
    with pytest.raises(RowsError, match=message):
        step(GroupState.empty(), rows, None, Policy.parse(FIFTY_THOUSAND), Settings())


def test_window_is_emitted_when_the_watermark_reaches_its_end() -> None:
    group = Group().batch(None, row("a", "12:00", 5))
    assert group.batch("12:14:59.999").emitted == []
    assert group.batch("12:15").emitted == [("m", "12:15", 1, 5)]
    assert group.batch("12:15").emitted == []


def test_emission_names_the_window_its_currency_and_the_policy() -> None:
    policy = """
        version = "v7"
        currency = "EUR"
        [[default]]
        limit_minor = 1
        release_level_minor = 0
        [[merchant]]
        id = "swiss"
        currency = "CHF"
        limit_minor = 9
        release_level_minor = 3
    """
    group = Group(policy).batch(None, row("a", "12:00", 10, "swiss"), row("b", "12:00", 2))
    group.batch("12:15")
    windows = group.output.windows.to_pylist()
    assert [(w["merchant_id"], w["currency"], w["policy_version"]) for w in windows] == [
        ("m", "EUR", "v7"),
        ("swiss", "CHF", "v7"),
    ]
    assert all(
        f"{w['window_start']:%T} {w['window_end']:%T}" == "12:00:00 12:15:00" for w in windows
    )
    decisions = group.output.decisions.to_pylist()
    assert [(d["limit_minor"], d["release_level_minor"], d["currency"]) for d in decisions] == [
        (1, 0, "EUR"),
        (9, 3, "CHF"),
    ]


def test_correction_is_emitted_again_with_the_next_revision() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:15")
    assert group.batch("12:16", row("b", "12:01", 2)).emitted == [("m", "12:15", 2, 7)]
    assert group.batch("12:16", row("c", "12:02", 1)).emitted == [("m", "12:15", 3, 8)]


def test_rows_that_add_up_to_nothing_are_no_correction() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:15")
    group.batch("12:16", row("b", "12:01", 2), row("c", "12:01", -2), row("d", "12:01", 0))
    assert group.emitted == []
    assert group.ids == ["a", "b", "c", "d"]


def test_open_window_whose_rows_add_up_to_nothing_is_emitted() -> None:
    group = Group().batch(None, row("a", "12:00", 5), row("b", "12:00", -5))
    assert group.batch("12:15").emitted == [("m", "12:15", 1, 0)]


def test_watermark_jump_emits_and_forgets_a_window() -> None:
    group = Group().batch(None, row("a", "12:00", 5), row("b", "14:00", 1))
    assert group.batch("13:00").emitted == [("m", "12:15", 1, 5)]
    assert group.windows == [("m", "14:15", 0, 1)]
    assert group.ids == ["b"]


def test_window_is_kept_until_the_cutoff_and_then_forgotten_with_its_ids() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:16:59.999")
    assert group.windows == [("m", "12:15", 1, 5)]
    group.batch("12:17")
    assert (group.windows, group.ids, group.merchants) == ([], [], {})


def test_windows_come_by_merchant_and_ascending_end() -> None:
    group = Group().batch(
        None,
        row("a", "12:20", 1, "z"),
        row("b", "12:00", 2, "z"),
        row("c", "12:00", 3, "é"),
        row("d", "12:00", 4, "b"),
    )
    group.batch("12:30")
    assert group.emitted == [
        ("b", "12:15", 1, 4),
        ("z", "12:15", 1, 2),
        ("z", "12:30", 1, 1),
        ("é", "12:15", 1, 3),
    ]


def test_first_emission_of_an_older_window_is_published_and_not_judged() -> None:
    group = Group(late_cutoff_us=3_600_000_000).batch(None, row("a", "12:16", 1)).batch("12:30")
    group.batch("12:30", row("b", "12:14", 9_000_000))
    assert group.emitted == [("m", "12:15", 1, 9_000_000)]
    assert group.decided == []
    assert group.merchants == {"m": False}


def test_nothing_is_emitted_or_forgotten_without_a_watermark() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch(None, row("b", "23:00", 5))
    assert group.emitted == []
    assert len(group.windows) == 2


def test_windows_before_1970_have_the_same_boundaries() -> None:
    before = {"occurred_at": -1, "amount_minor": 5}
    group = Group().batch(None, row("a", "12:00", 0) | before)
    assert group.state.windows["window_end"].cast("int64").to_pylist() == [0]


HYSTERESIS = """
version = "v1"
[[default]]
limit_minor = 100
release_level_minor = 40
"""


def held(exposure: int = 101, **settings: int) -> Group:
    """A merchant that was blocked at 12:15."""
    group = Group(HYSTERESIS, **settings).batch(None, row("first", "12:00", exposure))
    group.batch("12:15")
    assert group.decided == [("m", "block", "12:15", 1, exposure)]
    return group


def test_exposure_above_the_limit_blocks_and_at_the_limit_does_not() -> None:
    group = Group(HYSTERESIS).batch(None, row("a", "12:00", 101, "x"), row("b", "12:00", 100, "y"))
    group.batch("12:15")
    assert group.decided == [("x", "block", "12:15", 1, 101)]
    assert group.merchants == {"x": True, "y": False}


def test_hold_ends_at_the_release_level_and_not_above_it() -> None:
    group = held().batch("12:15", row("a", "12:16", 41), row("b", "12:31", 40))
    assert group.batch("12:30").decided == []
    assert group.batch("12:45").decided == [("m", "release", "12:45", 1, 40)]


def test_merchant_that_is_held_is_not_blocked_again() -> None:
    group = held().batch("12:15", row("a", "12:16", 500))
    assert group.batch("12:30").decided == []
    assert group.merchants == {"m": True}


def test_merchant_that_is_not_held_is_not_released() -> None:
    group = Group(HYSTERESIS).batch(None, row("a", "12:00", 1))
    assert group.batch("12:15").decided == []


def test_hold_closes_the_next_window_without_any_event() -> None:
    group = held().batch("12:30")
    assert group.emitted == [("m", "12:30", 1, 0)]
    assert group.decided == [("m", "release", "12:30", 1, 0)]
    assert group.batch("13:30").emitted == []
    assert group.merchants == {}


def test_empty_window_is_revisable_until_its_cutoff() -> None:
    group = held().batch("12:30")
    group.batch("12:31", row("a", "12:20", 300))
    assert group.emitted == [("m", "12:30", 2, 300)]
    assert group.decided == [("m", "block", "12:30", 1, 300)]
    group.batch("12:31", row("b", "12:20", -300))
    assert group.decided == [("m", "release", "12:30", 2, 0)]


def test_empty_window_past_its_own_cutoff_is_emitted_and_forgotten() -> None:
    group = held().batch("20:00")
    assert group.emitted == [("m", "12:30", 1, 0)]
    assert group.decided == [("m", "release", "12:30", 1, 0)]
    assert (group.windows, group.merchants) == ([], {})


def test_empty_window_comes_between_the_windows_that_exist() -> None:
    group = Group(HYSTERESIS).batch(
        None, row("a", "12:00", 200), row("b", "12:40", 300), row("c", "12:50", 50)
    )
    group.batch("13:15")
    assert group.emitted == [
        ("m", "12:15", 1, 200),
        ("m", "12:30", 1, 0),
        ("m", "12:45", 1, 300),
        ("m", "13:00", 1, 50),
        ("m", "13:15", 1, 0),
    ]
    assert group.decided == [
        ("m", "block", "12:15", 1, 200),
        ("m", "release", "12:30", 1, 0),
        ("m", "block", "12:45", 1, 300),
        ("m", "release", "13:15", 1, 0),
    ]


def test_earlier_hold_closes_the_empty_window_before_a_later_one() -> None:
    group = held().batch("12:15", row("a", "12:31", 200))
    group.batch("12:45")
    assert group.emitted == [("m", "12:30", 1, 0), ("m", "12:45", 1, 200)]
    assert [d[:3] for d in group.decided] == [("m", "release", "12:30"), ("m", "block", "12:45")]


def test_no_empty_window_where_the_next_one_has_events() -> None:
    group = held().batch("12:15", row("a", "12:16", 60)).batch("12:30")
    assert group.emitted == [("m", "12:30", 1, 60)]
    assert group.merchants == {"m": True}


def test_corrected_latest_window_decides_with_the_next_ordinal() -> None:
    group = held()
    assert group.batch("12:16", row("a", "12:01", -61)).decided == [
        ("m", "release", "12:15", 1, 40)
    ]
    assert group.batch("12:16", row("b", "12:01", 61)).decided == [("m", "block", "12:15", 2, 101)]
    assert group.batch("12:16", row("c", "12:01", -61)).decided == [
        ("m", "release", "12:15", 2, 40)
    ]
    assert group.emitted == [("m", "12:15", 4, 40)]


def test_ordinal_counts_decisions_and_not_batches() -> None:
    group = Group(HYSTERESIS).batch(None, row("a", "12:01", 101))
    group.batch("12:05", row("b", "12:20", 1))
    assert group.batch("12:15").decided == [("m", "block", "12:15", 1, 101)]
    group.batch("12:15", row("c", "12:21", 1))
    assert group.batch("12:15", row("d", "12:01", -61)).decided == [
        ("m", "release", "12:15", 1, 40)
    ]


def test_each_merchant_carries_its_own_hold_through_a_batch() -> None:
    group = Group(HYSTERESIS).batch(
        None,
        *(row(f"{name}1", "12:01", 101, name) for name in ("m", "n")),
        *(row(f"{name}2", "12:16", 40, name) for name in ("m", "n")),
    )
    assert group.batch("12:30").decided == [
        (name, action, end, 1, exposure)
        for name in ("m", "n")
        for action, end, exposure in (("block", "12:15", 101), ("release", "12:30", 40))
    ]


def test_correction_of_an_older_window_does_not_change_the_hold() -> None:
    group = held(late_cutoff_us=3_600_000_000)
    group.batch("12:15", row("a", "12:16", 60)).batch("12:30", row("b", "12:01", -101))
    assert group.emitted == [("m", "12:15", 2, 0), ("m", "12:30", 1, 60)]
    # 12:15 was the latest when its correction went out, so the hold ended there ...
    assert group.decided == [("m", "release", "12:15", 1, 0)]
    group.batch("12:30", row("c", "12:01", 900))
    # ... and now 12:30 is.
    assert group.emitted == [("m", "12:15", 3, 900)]
    assert group.decided == []


def test_empty_latest_window_ends_decisions_of_the_one_before() -> None:
    group = held(late_cutoff_us=3_600_000_000).batch("12:30")
    group.batch("12:31", row("a", "12:01", 900))
    assert group.emitted == [("m", "12:15", 2, 1001)]
    assert group.decided == []


def test_correction_that_ends_the_hold_leaves_no_empty_window() -> None:
    group = held(late_cutoff_us=3_600_000_000).batch("12:30", row("a", "12:01", -101))
    assert group.emitted == [("m", "12:15", 2, 0)]
    assert group.decided == [("m", "release", "12:15", 1, 0)]


def test_hold_is_remembered_after_its_window_is_forgotten() -> None:
    group = held().batch("12:17")
    assert group.windows == []
    assert group.merchants == {"m": True}
    assert group.batch("12:30").decided == [("m", "release", "12:30", 1, 0)]


def test_limits_are_those_in_force_at_the_window_end() -> None:
    policy = (
        HYSTERESIS
        + """
        [[merchant]]
        id = "m"
        limit_minor = 1000
        release_level_minor = 1000
        effective_from = 2026-11-02T12:30:00Z
    """
    )
    group = Group(policy).batch(None, row("a", "12:00", 200), row("b", "12:16", 200))
    group.batch("12:30")
    assert group.decided == [("m", "block", "12:15", 1, 200), ("m", "release", "12:30", 1, 200)]
    assert group.output.decisions["limit_minor"].to_pylist() == [100, 1000]


def test_thousands_of_windows_of_one_merchant_alternate_correctly() -> None:
    minutes = range(0, 24 * 60, 30)
    rows = [row(f"e{m}", f"{m // 60:02}:{m % 60:02}", 101) for m in minutes]
    group = Group(HYSTERESIS).batch(None, *rows).batch("24:00")
    assert len(group.emitted) == 2 * len(minutes)
    assert [d[1] for d in group.decided] == ["block", "release"] * len(minutes)
    assert {d[3] for d in group.decided} == {1}
    assert group.merchants == {"m": False}


def test_windows_are_kept_by_end_and_then_by_merchant() -> None:
    group = Group().batch(
        None, row("a", "12:20", 1, "b"), row("b", "12:00", 1, "c"), row("c", "12:20", 1, "a")
    )
    group.batch("12:15", row("d", "12:01", 1, "a"))
    columns = group.state.windows.select(["merchant_id", "window_end"]).to_pylist()
    assert [w["merchant_id"] for w in columns] == ["a", "c", "a", "b"]
    assert columns == sorted(columns, key=lambda w: (w["window_end"], w["merchant_id"]))


def test_state_does_not_depend_on_row_order() -> None:
    rows = [
        row("a", "12:00", 9_000_000),
        row("b", "12:16", 1, "other"),
        row("é\U0001f389", "12:20", -3),
    ]
    one, other = (Group().batch(None, *given).batch("12:15") for given in (rows, rows[::-1]))
    assert one.state == other.state


def test_ids_are_only_appended_until_a_window_is_forgotten() -> None:
    group = Group().batch(None, row("a", "12:00", 1), row("b", "12:16", 1, "other"))
    before = group.absorbed
    group.batch("12:15:01", row("b", "12:16", 1, "other"))
    assert group.absorbed == before  # a duplicate adds nothing
    assert group.output.absorbed.num_rows == 0

    group.batch("12:16", row("d", "12:21", 1), row("c", "12:21", 1), row("e", "12:01", 1))
    new = [("m", "12:15", "e"), ("m", "12:30", "c"), ("m", "12:30", "d")]
    assert group.absorbed == before + new

    group.batch("12:17")
    assert group.absorbed == [kept for kept in before + new if kept[2] not in {"a", "e"}]


def test_a_step_says_which_ids_it_added() -> None:
    group = Group().batch(None, row("a", "12:00", 1), row("b", "12:16", 1, "other"))
    assert group.output.absorbed.equals(group.state.absorbed)
    group.batch("12:15", row("c", "12:01", 1), row("a", "12:00", 1), row("d", "11:00", 1))
    assert group.output.absorbed["event_id"].to_pylist() == ["c"]


def test_a_step_without_rows_does_not_look_at_ids() -> None:
    group = Group().batch(None, row("a", "12:00", 9_000_000), row("b", "12:16", 1, "other"))
    other = Group()
    other.state = group.forget_ids()
    for watermark in ("12:15", "12:17", "12:31"):
        assert group.batch(watermark).output == other.batch(watermark).output
        assert group.state.windows == other.state.windows
        assert group.state.merchants == other.state.merchants
    assert group.timer == other.timer == at("12:32")


def test_open_window_sets_timers_for_end_and_cutoff() -> None:
    group = Group().batch(None, row("a", "12:00", 5))
    assert group.timer == at("12:15")
    assert group.batch("12:15").timer == at("12:17")
    assert group.batch("12:17").timer is None


def test_hold_wakes_the_group_at_the_end_of_the_next_window() -> None:
    group = Group().batch(None, row("a", "12:00", 9_000_000)).batch("12:17")
    assert group.timer == at("12:30")
    assert group.batch("12:30").timer == at("12:32")


def test_earliest_of_all_merchants_counts() -> None:
    group = Group().batch(None, row("a", "12:20", 5), row("b", "12:00", 5, "other"))
    assert group.timer == at("12:15")


def test_group_without_memory_waits_for_nothing() -> None:
    assert Group().timer is None


def test_timer_is_after_the_watermark() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:15")
    group.watermark = at("12:16:59.999")
    assert group.timer == at("12:17")
    group.watermark = at("12:17")
    assert group.timer is None


def test_nothing_happens_before_the_timer() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:15")
    before = group.state
    group.batch("12:16:59.999")
    assert group.state is before
    assert group.emitted == []


MOMENTS = st.one_of(st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.tuples(st.integers(0, 5), MOMENTS)))
def test_order_is_by_owner_and_then_by_moment(pairs: list[tuple[int, int]]) -> None:
    owner, moment = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    assert [pairs[i] for i in by_owner(owner, moment)] == sorted(pairs)
