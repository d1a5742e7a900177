"""What is shown of one merchant, from the state that the step itself left."""

from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.inspection.view import Due, Merchant, Timer, Window, view
from tests.support.job.exposure import Group, at, row

SETTINGS = Settings()


def _view(group: Group, merchant_id: str = "m") -> Merchant:
    found = view(group.state, merchant_id, group.settings)
    assert found is not None
    return found


def test_an_open_window_has_its_ids_and_is_due_to_be_emitted_and_to_expire() -> None:
    group = Group().batch(
        "12:13:30",
        row("e917", "12:16", 2_500_000),
        row("e918", "12:17", 500_000),
        row("e919", "12:20", 1_000_000),
        row("other", "12:20", 7, merchant="n"),
    )
    found = _view(group)
    assert found == Merchant(
        held=False,
        latest_end_us=None,
        windows=(
            Window(
                start_us=at("12:15"),
                end_us=at("12:30"),
                exposure_minor=4_000_000,
                revision=0,
                blocks=0,
                releases=0,
                event_ids=("e917", "e918", "e919"),
                expire_us=at("12:32"),
            ),
        ),
        next_empty_us=None,
    )
    assert found.windows[0].emit_us == at("12:30")
    assert found.timers == (
        Timer(at("12:30"), Due.EMIT, at("12:30")),
        Timer(at("12:32"), Due.EXPIRE, at("12:30")),
    )


def test_an_emitted_window_waits_for_its_cutoff_alone() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 1)).batch("12:16", row("e2", "12:02", 2))
    (window,) = _view(group).windows
    assert (window.is_open, window.revision, window.emit_us) == (False, 1, None)
    group.batch("12:16", row("e3", "12:03", 3))
    (window,) = _view(group).windows
    assert (window.revision, window.exposure_minor) == (2, 6)
    assert window.event_ids == ("e1", "e2", "e3")
    assert [timer.due for timer in _view(group).timers] == [Due.EXPIRE]


def test_a_hold_closes_the_next_window_unless_an_event_fell_into_it() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 6_000_000)).batch("12:18")
    held = _view(group)
    assert (held.held, held.latest_end_us, held.windows) == (True, at("12:15"), ())
    assert held.timers == (Timer(at("12:30"), Due.CLOSE_EMPTY, at("12:30")),)

    group.batch("12:18", row("e2", "12:20", 6_000_000), row("e3", "12:40", 1))
    held = _view(group)
    assert held.next_empty_us is None
    assert [(w.end_us, w.is_open) for w in held.windows] == [
        (at("12:30"), True),
        (at("12:45"), True),
    ]


def test_the_moments_shown_are_those_of_the_step() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 6_000_000)).batch("12:15")
    for rows in ([], [row("e2", "12:20", 1)], [row("e3", "12:50", 1)]):
        group.batch("12:15:30", *rows)
        assert _view(group).timers[0].at_us == group.timer


def test_who_is_not_in_the_state_is_not_shown() -> None:
    assert view(GroupState.empty(), "m", SETTINGS) is None
    group = Group().batch("12:00", row("e1", "12:01", 1))
    assert view(group.state, "M", SETTINGS) is None
    # Emitted, forgotten, not held.
    assert view(group.batch("12:30").state, "m", SETTINGS) is None
