"""What changed for a merchant between two batches."""

from holdfast.spark_app.inspection.diff import Change, Difference, difference
from holdfast.spark_app.inspection.view import Due, Snapshot, Timer, view
from tests.support.job.exposure import Group, at, row


def _snapshot(group: Group, batch: int) -> Snapshot:
    merchant = view(group.state, "m", group.settings)
    return Snapshot(batch, group.watermark, group.timer, None, merchant)


def _difference(group: Group, *next_batch: object, watermark: str) -> Difference:
    before = _snapshot(group, 1)
    return difference(before, _snapshot(group.batch(watermark, *next_batch), 2))


def test_the_same_state_twice_is_no_change() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 1))
    found = _difference(group, watermark="12:05")
    assert not found.changed
    assert (found.windows, found.timers_set, found.timers_gone) == ((), (), ())


def test_an_absorbed_event_changes_its_window_alone() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 5), row("e2", "12:16", 7))
    found = _difference(group, row("e3", "12:17", -2), watermark="12:05")
    (window,) = found.windows
    assert window.before
    assert window.after
    assert window.change is Change.CHANGED
    assert (window.before.exposure_minor, window.after.exposure_minor) == (7, 5)
    assert (window.absorbed, window.forgotten) == (("e3",), ())
    assert found.changed


def test_a_window_appears_is_emitted_and_goes_with_its_ids() -> None:
    group = Group()
    first = _difference(group, row("e1", "12:01", 6_000_000), watermark="12:00")
    assert first.known
    assert [(w.change, w.absorbed) for w in first.windows] == [(Change.APPEARED, ("e1",))]
    assert first.timers_set == (
        Timer(at("12:15"), Due.EMIT, at("12:15")),
        Timer(at("12:17"), Due.EXPIRE, at("12:15")),
    )

    emitted = _difference(group, watermark="12:15")
    assert [(w.change, w.absorbed, w.forgotten) for w in emitted.windows] == [
        (Change.CHANGED, (), ())
    ]
    assert emitted.held == (False, True)
    assert emitted.latest_end_us == (None, at("12:15"))
    assert emitted.timers_gone == (Timer(at("12:15"), Due.EMIT, at("12:15")),)
    assert emitted.timers_set == (Timer(at("12:30"), Due.CLOSE_EMPTY, at("12:30")),)

    gone = _difference(group, watermark="12:17")
    assert [(w.change, w.forgotten) for w in gone.windows] == [(Change.GONE, ("e1",))]
    assert gone.held == (True, True)


def test_a_merchant_that_is_forgotten_is_known_before() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 1))
    found = _difference(group, watermark="12:20")
    assert found.known
    assert found.after.merchant is None
    again = _difference(group, watermark="12:21")
    assert not again.known
    assert not again.changed
