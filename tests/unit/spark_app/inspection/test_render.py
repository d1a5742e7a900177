"""The answer as a person reads it."""

from dataclasses import replace

from holdfast.spark_app.inspection import document, render
from holdfast.spark_app.inspection.diff import difference
from holdfast.spark_app.inspection.document import StateLocation
from holdfast.spark_app.inspection.view import Snapshot, view
from tests.support.job.exposure import FIFTY_THOUSAND, Group, at, row

LOCATION = StateLocation("/ck", "m", "payouts", key_group=3, key_groups=32, batches=(0, 9))


def _snapshot(group: Group, batch: int) -> Snapshot:
    merchant = view(group.state, "m", group.settings)
    return Snapshot(batch, group.watermark, group.timer, None, merchant)


def _text(group: Group, batch: int = 7, **other: int) -> list[str]:
    snapshot = replace(_snapshot(group, batch), **other)
    assert snapshot.merchant is not None
    return [line.plain for line in render.inspected(LOCATION, snapshot, snapshot.merchant)]


def test_a_held_merchant_with_an_open_and_an_emitted_window() -> None:
    group = (
        Group()
        .batch("12:00", row("e916", "12:14", 8_500_000))
        .batch("12:16", *(row(f"e{n}", "12:20", 1_000_000) for n in range(917, 921)))
    )
    assert _text(group) == [
        "m  held · emitted up to 12:15 · after batch 7 · watermark 2026-11-02 12:16:00Z",
        "2026-11-02 UTC",
        (
            "  12:00-12:15  emitted rev 1, 1 block (revisable)  8,500,000              expire@12:17"
            "  ids 1: e916"
        ),
        (
            "  12:15-12:30  open                                4,000,000  emit@12:30  expire@12:32"
            "  ids 4: e917 e918 e919 e920"
        ),
        "key group 3, one of 32, has its timer at 2026-11-02 12:17:00Z",
    ]


def test_windows_and_the_one_that_a_hold_closes_stand_in_order() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 6_000_000), row("e2", "12:31", 1))
    starts = [line.split()[0] for line in _text(group.batch("12:18"))[2:-1]]
    assert starts == ["12:15-12:30", "12:30-12:45"]


def test_a_hold_without_windows_says_what_it_closes() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 6_000_000)).batch("12:18")
    assert _text(group)[1:3] == [
        "2026-11-02 UTC",
        "  12:15-12:30  no event yet  close@12:30  the hold closes it empty",
    ]


def test_of_many_ids_the_first_are_shown_and_the_rest_is_counted() -> None:
    group = Group().batch("12:00", *(row(f"e{n:04}", "12:01", 1) for n in range(1_209)))
    assert _text(group)[2].endswith("  ids 1,209: e0000 e0001 e0002 e0003 e0004 and 1,204 more")


def test_another_day_is_named_where_it_begins() -> None:
    group = Group(FIFTY_THOUSAND, late_cutoff_us=25 * 3_600_000_000)
    group.batch("12:00", row("e1", "23:50", -5), row("e2", "24:01:00", 1234))
    assert _text(group)[1:] == [
        "2026-11-02 UTC",
        "  23:45-00:00  open     -5  emit@2026-11-03 00:00  expire@2026-11-04 01:00  ids 1: e1",
        "2026-11-03 UTC",
        "  00:00-00:15  open  1,234  emit@00:15             expire@2026-11-04 01:15  ids 1: e2",
        "key group 3, one of 32, has its timer at 2026-11-03 00:00:00Z",
    ]


def test_what_was_settled_before_the_checkpoint_is_said() -> None:
    group = Group().batch(None, row("e1", "12:01", 1))
    told = _text(group, settled_until_us=at("12:00"))
    assert told[0] == "m  not held · nothing emitted yet · after batch 7 · no watermark yet"
    assert told[-2] == (
        "windows up to 2026-11-02 12:00:00Z were settled before this checkpoint; it never opens"
        " them again"
    )


def test_a_terminal_obeys_nothing_that_an_id_says() -> None:
    group = Group().batch("12:00", row("\x9b2J\u202e", "12:01", 1))
    assert _text(group)[2].endswith("ids 1: \\x9b2J\\u202e")


def test_a_change_of_revision_decision_and_ids() -> None:
    group = (
        Group()
        .batch("12:00", row("e1", "12:14", 8_500_000), row("e2", "12:20", 4_000_000))
        .batch("12:15")
    )
    before = _snapshot(group, 7)
    group.batch("12:16", row("e3", "12:14", -8_000_000), row("e4", "12:31", 1))
    found = difference(before, _snapshot(group, 8))
    told = [line.plain for line in render.compared(LOCATION, found)]
    assert [" ".join(line.split()) for line in told] == [
        (
            "m after batch 7 (watermark 2026-11-02 12:15:00Z)"
            " -> after batch 8 (watermark 2026-11-02 12:16:00Z)"
        ),
        "held -> not held",
        "2026-11-02 UTC",
        (
            "~ 12:00-12:15 emitted rev 1, 1 block -> emitted rev 2, 1 block, 1 release"
            " 8,500,000 -> 500,000 +e3"
        ),
        "+ 12:30-12:45 open 1 +e4",
        "due now: emit@12:45 expire@12:47",
    ]
    same = difference(before, replace(before, batch=8))
    assert [line.plain for line in render.compared(LOCATION, same)][1:] == ["  nothing changed"]


def test_a_window_that_is_gone_was_emitted_before() -> None:
    group = Group().batch("12:00", *(row(f"e{n}", "12:14", 1) for n in range(7)))
    before = _snapshot(group, 7)
    found = difference(before, _snapshot(group.batch("12:30"), 8))
    assert [line.plain for line in render.compared(LOCATION, found)][2:] == [
        "  - 12:00-12:15  open  7  -e0 -e1 -e2 -e3 -e4 and 2 more  emitted, then forgotten",
        "  no longer due: emit@12:15  expire@12:17",
    ]


def test_an_amount_beyond_what_a_double_holds_is_an_integer_in_json() -> None:
    group = Group().batch("12:00", *(row(f"e{n}", "12:01", 10**15) for n in range(10)))
    snapshot = replace(_snapshot(group, 7), group_timer_us=None)
    answer = document.inspected(LOCATION, snapshot)
    assert answer["windows"][0]["exposure_minor"] == 10**16
    assert answer["key_group_timer"] is None
    assert answer["timers"][0] == {
        "at": "2026-11-02T12:15:00Z",
        "due": "emit",
        "window_end": "2026-11-02T12:15:00Z",
    }
