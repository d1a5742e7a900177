"""What a step does to the state it is given."""

from tests.support.job.exposure import Group, at, row


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
