"""When a window is published, published again, and forgotten."""

from tests.support.job.exposure import Group, row


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


def test_window_is_emitted_and_forgotten_when_the_watermark_jumps_over_both() -> None:
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
