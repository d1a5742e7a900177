"""`job inspect`: what is shown of one merchant, compared, and refused before Spark starts."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.inspection import answer, document
from holdfast.spark_app.inspection.diff import Change, Difference, difference
from holdfast.spark_app.inspection.document import StateLocation
from holdfast.spark_app.inspection.view import Due, Merchant, Snapshot, Timer, Window, view
from tests.support.command import holdfast
from tests.support.job.exposure import FIFTY_THOUSAND, Group, at, row

SETTINGS = Settings()


def _view(group: Group, merchant_id: str = "m") -> Merchant:
    shown = view(group.state, merchant_id, group.settings)
    assert shown is not None
    return shown


def test_open_window_shows_ids_emission_and_expiry() -> None:
    group = Group().batch(
        "12:13:30",
        row("e917", "12:16", 2_500_000),
        row("e918", "12:17", 500_000),
        row("e919", "12:20", 1_000_000),
        row("other", "12:20", 7, merchant="n"),
    )
    shown = _view(group)
    assert shown == Merchant(
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
    assert shown.windows[0].emit_us == at("12:30")
    assert shown.timers == (
        Timer(at("12:30"), Due.EMIT, at("12:30")),
        Timer(at("12:32"), Due.EXPIRE, at("12:30")),
    )


def test_emitted_window_waits_only_for_its_cutoff() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 1)).batch("12:16", row("e2", "12:02", 2))
    (window,) = _view(group).windows
    assert (window.is_open, window.revision, window.emit_us) == (False, 1, None)
    group.batch("12:16", row("e3", "12:03", 3))
    (window,) = _view(group).windows
    assert (window.revision, window.exposure_minor) == (2, 6)
    assert window.event_ids == ("e1", "e2", "e3")
    assert [timer.due for timer in _view(group).timers] == [Due.EXPIRE]


def test_hold_closes_the_next_window_if_it_is_empty() -> None:
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


def _snapshot(group: Group, batch: int) -> Snapshot:
    merchant = view(group.state, "m", group.settings)
    return Snapshot(batch, group.watermark, group.timer, None, merchant)


def _difference(group: Group, *next_batch: object, watermark: str) -> Difference:
    before = _snapshot(group, 1)
    return difference(before, _snapshot(group.batch(watermark, *next_batch), 2))


def test_the_same_state_twice_is_no_change() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 1))
    changes = _difference(group, watermark="12:05")
    assert not changes.changed
    assert (changes.windows, changes.timers_set, changes.timers_gone) == ((), (), ())


def test_absorbed_event_changes_only_its_window() -> None:
    group = Group().batch("12:00", row("e1", "12:01", 5), row("e2", "12:16", 7))
    changes = _difference(group, row("e3", "12:17", -2), watermark="12:05")
    (window,) = changes.windows
    assert window.before
    assert window.after
    assert window.change is Change.CHANGED
    assert (window.before.exposure_minor, window.after.exposure_minor) == (7, 5)
    assert (window.absorbed, window.forgotten) == (("e3",), ())
    assert changes.changed


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
    changes = _difference(group, watermark="12:20")
    assert changes.known
    assert changes.after.merchant is None
    again = _difference(group, watermark="12:21")
    assert not again.known
    assert not again.changed


LOCATION = StateLocation("/ck", "m", "payouts", key_group=3, key_groups=32, batches=(0, 9))


def _text(group: Group, batch: int = 7, **other: int) -> list[str]:
    snapshot = replace(_snapshot(group, batch), **other)
    assert snapshot.merchant is not None
    return [line.plain for line in answer.inspected(LOCATION, snapshot, snapshot.merchant)]


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


def test_windows_settled_before_the_checkpoint_are_reported() -> None:
    group = Group().batch(None, row("e1", "12:01", 1))
    reply = _text(group, settled_until_us=at("12:00"))
    assert reply[0] == "m  not held · nothing emitted yet · after batch 7 · no watermark yet"
    assert reply[-2] == (
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
    changes = difference(before, _snapshot(group, 8))
    reply = [line.plain for line in answer.compared(LOCATION, changes)]
    assert [" ".join(line.split()) for line in reply] == [
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
    assert [line.plain for line in answer.compared(LOCATION, same)][1:] == ["  nothing changed"]


def test_a_window_that_is_gone_was_emitted_before() -> None:
    group = Group().batch("12:00", *(row(f"e{n}", "12:14", 1) for n in range(7)))
    before = _snapshot(group, 7)
    changes = difference(before, _snapshot(group.batch("12:30"), 8))
    assert [line.plain for line in answer.compared(LOCATION, changes)][2:] == [
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


MISTAKES = {
    "not a checkpoint": ([], "is not a checkpoint of the exposure job"),
    "no checkpoint": (["--checkpoint", ""], "--checkpoint '' names no directory"),
    "no merchant": (["--merchant", ""], "--merchant is not the id of a merchant"),
    "a merchant with a line break": (["--merchant", "m\n1"], "none below U+0020"),
    "a batch and two": (["--batch", "1", "--diff", "1", "2"], "--batch shows one"),
    "the later batch first": (["--diff", "3", "2"], "try --diff 2 3"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_option_is_one_line_and_a_usage_error(mistake: str, tmp_path: Path) -> None:
    options, said = MISTAKES[mistake]
    question = ["--checkpoint", str(tmp_path), "--merchant", "m_482", *options]
    done = holdfast("job", "inspect", *question, process=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_command_is_known_without_spark_and_arrow() -> None:
    loaded = "import sys, holdfast.spark_app.inspection.cli; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded + "; print('pyarrow' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]


JAVAS = {
    "none": (None, "does not run"),
    "too old": ("echo 'version \"1.8.0\"' >&2", "25.0.3 and newer"),
    "without memory": (
        'echo \'version "17.0.1"\' >&2; [ "$1" = -version ] || { echo no heap >&2; exit 1; }',
        'Spark did not start: version "17.0.1" no heap',
    ),
}
"""What `java` does, as a script, and what is said of it."""


@pytest.mark.rest
@pytest.mark.parametrize("java", JAVAS)
def test_a_java_that_cannot_be_used_is_one_line(java: str, tmp_path: Path) -> None:
    script, said = JAVAS[java]
    (tmp_path / "holdfast.json").write_text("{}")
    if script is not None:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
    done = holdfast(
        *("job", "inspect", "--checkpoint", str(tmp_path), "--merchant", "m_482"),
        environment={"JAVA_HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert "holdfast local env" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
