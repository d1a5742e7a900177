"""What pages of the console are made of and say, without a server."""

import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.routing import APIRoute
from jinja2 import UndefinedError

from holdfast.dispatcher.api.console import verbs
from holdfast.dispatcher.api.console.forms.confirm import CHOSEN_MAX, numbers_of
from holdfast.dispatcher.api.console.forms.fields import exact_time, when_of, whole_number
from holdfast.dispatcher.api.console.frame.templating import SCREENS, environment
from holdfast.dispatcher.api.console.rendering.filters import (
    NOTHING,
    SHAPES,
    TONES,
    clock,
    detail_text,
    finalize,
    link,
    number,
    page_of,
    size,
    tone,
    visible,
)
from holdfast.dispatcher.api.console.routes import replays
from holdfast.dispatcher.api.console.routes.batches import line_diff
from holdfast.dispatcher.api.console.routes.entries import copy_of, timelines
from holdfast.dispatcher.api.console.routes.overview import Series, per_minute, percentiles
from holdfast.dispatcher.operators import registry
from holdfast.dispatcher.operators.replays.views import hold_reason
from holdfast.sink.contract.exits import CommandError

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
MINUTES = [NOON + timedelta(minutes=each) for each in range(60)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("m_482", "m_482"),
        ("Zoë\n\t", "Zoë\n\t"),
        ("a\x00b", "a\\x00b"),
        ("a\u202eb", "a\\u202eb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_does_not_print_is_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown
    shown.encode()


def test_templates_escape_and_know_every_name() -> None:
    made = environment().from_string("{{ a }} {{ b }} {{ c }}")
    assert made.render(a="<b>\u202e", b=None, c=3) == "&lt;b&gt;\\u202e \N{EN DASH} 3"
    with pytest.raises(UndefinedError):
        made.render(a=1)


def test_every_template_is_sound_and_marks_nothing_safe() -> None:
    made = environment()
    for name in made.list_templates():
        made.get_template(name)
        source, _, _ = made.loader.get_source(made, name)  # type: ignore[union-attr]
        assert "|safe" not in source.replace(" ", "")
        assert "autoescape false" not in source


def test_every_tone_has_a_shape_of_its_own() -> None:
    assert set(TONES) == set(SHAPES)
    assert len(set(SHAPES.values())) == len(SHAPES)
    words = " ".join(TONES.values()).split()
    assert len(words) == len(set(words))
    assert tone("a word that is new") == "idle"


def test_keys_of_screens_differ() -> None:
    assert len({each.key for each in SCREENS}) == len(SCREENS)
    assert len({each.path for each in SCREENS}) == len(SCREENS)


def test_numbers_and_sizes_are_read_by_people() -> None:
    assert [number(each) for each in (0, 1234567, 0.5, None)] == ["0", "1,234,567", "0.5", NOTHING]
    assert [size(each) for each in (1, 2048, 5 * 1024**3)] == ["1 byte", "2.0 KiB", "5.0 GiB"]


def test_link_leaves_out_what_is_empty_and_quotes_the_rest() -> None:
    assert (
        link("/entries", subject="a&b /#", type="", stream=None) == "/entries?subject=a%26b+%2F%23"
    )
    assert link("/entries", type=None) == "/entries"
    assert finalize(link("/subjects/show", name="\u202e")) == "/subjects/show?name=%E2%80%AE"


@pytest.mark.parametrize("text", ["2026-11-02T12:00:00", "soon", "9" * 50])
def test_time_without_a_zone_is_refused(text: str) -> None:
    for parse in (when_of, exact_time):
        with pytest.raises(CommandError):
            parse("since", text)


def test_form_that_is_posted_twice_takes_no_relative_time() -> None:
    assert when_of("since", "2h") is not None
    with pytest.raises(CommandError):
        exact_time("since", "2h")


@pytest.mark.parametrize("text", ["-1", "1.5", "\u0663", "9" * 19, "x"])
def test_number_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        whole_number("batch", text)
    assert whole_number("batch", " 7 ") == 7
    assert whole_number("batch", " ") is None


def test_bars_stand_upon_each_other_within_the_chart() -> None:
    good = Series("delivered", "good", [10] * 59 + [100])
    bad = Series("failed", "bad", [0] * 59 + [37])
    chart = per_minute("Attempts", MINUTES, [good, bad], stacked=True)
    assert len(chart.bars) == 61
    last_good, last_bad = chart.bars[-2:]
    assert last_bad.y + last_bad.height == pytest.approx(last_good.y, abs=0.02)
    assert all(bar.y >= 0 and bar.y + bar.height <= chart.bottom + 0.02 for bar in chart.bars)
    assert all(chart.left <= bar.x and bar.x + bar.width <= chart.right for bar in chart.bars)
    assert [mark.text for mark in chart.scale] == ["0", "50", "100", "150"]
    assert [mark.text for mark in chart.times][:2] == ["12:00", "12:10"]
    assert "690 delivered, 37 failed" in chart.text


def test_zero_line_is_labelled_and_missing_bar_is_not() -> None:
    series = [Series("written", "wait", [1] * 60), Series("delivered", "good", [0] * 60)]
    lines = per_minute("Entries", MINUTES, series, stacked=False)
    assert [each.name for each in lines.legend] == ["written", "delivered"]
    bars = per_minute("Entries", MINUTES, series, stacked=True)
    assert [each.name for each in bars.legend] == ["written"]


@pytest.mark.parametrize("values", [[0] * 60, [1] * 60, [3] * 60, [10**9] * 60])
def test_chart_of_any_height_has_a_scale_that_reaches_it(values: list[int]) -> None:
    chart = per_minute("Entries", MINUTES, [Series("written", "wait", values)], stacked=False)
    (line,) = chart.lines
    assert line.d.startswith("M")
    assert line.d.count("L") == 59
    assert 2 <= len(chart.scale) <= 6
    assert chart.scale[-1].at <= float(line.d.split()[1].rstrip("L")) <= chart.bottom


def test_chart_of_no_minute_and_percentiles_of_nothing_are_empty() -> None:
    assert per_minute("Entries", [], [], stacked=True).bars == []
    chart = percentiles("Took", {"p50": None, "p95": None, "p99": None}, unit=1.0)
    assert (chart.bars, chart.text) == ([], "none")
    chart = percentiles("Took", {"p50": 5.0, "p95": 20.0, "p99": None}, unit=0.001)
    assert chart.text == "p50 5 ms, p95 20 ms"
    assert chart.bars[0].width < chart.bars[1].width


def _found(attempts: int) -> dict[str, object]:
    tried = [
        {
            "number": number,
            "finished_at": NOON + timedelta(seconds=10 + number),
            "outcome": "failed",
            "status": 500,
            "duration_ms": 5,
            "error": None,
            "receipt": None,
        }
        for number in range(1, attempts + 1)
    ]
    batch = {"batch_id": 1, "stream": "test", "entry_count": 2, "written_at": NOON}
    return {
        "entry": {"occurred_at": NOON - timedelta(minutes=5)},
        "batch": {**batch, "routed_at": NOON + timedelta(seconds=1)},
        "endpoints": [{"endpoint": "payouts", "attempts": tried}],
    }


def test_way_of_an_entry_has_the_time_between_its_steps() -> None:
    entry = _found(2)
    receipt = {"outcome": "applied", "applied_at": "2026-11-02T12:00:13Z"}
    entry["endpoints"][0]["attempts"][1]["receipt"] = receipt  # type: ignore[index]
    first, endpoint_timeline = timelines(entry)
    assert [(step.what, step.gap) for step in first.steps] == [
        ("decided", ""),
        ("written", "+5 min"),
        ("routed", "+1 s"),
    ]
    assert [(step.what, step.gap) for step in endpoint_timeline.steps] == [
        ("attempt 1: failed", "+10 s"),
        ("attempt 2: failed", "+1 s"),
        ("receipt", "+1 s"),
    ]


def test_way_of_many_attempts_shows_the_first_and_the_newest() -> None:
    _, endpoint_timeline = timelines(_found(12))
    assert [step.what for step in endpoint_timeline.steps] == [
        "attempt 1: failed",
        "8 further attempts",
        "attempt 10: failed",
        "attempt 11: failed",
        "attempt 12: failed",
    ]


def test_copied_request_is_shell_quoted_without_secrets() -> None:
    entry = {
        "key": f"hf_{'a' * 32}",
        "subject_id": 1,
        "subject": "m_1",
        "traceparent": None,
        "body": '{"it\'s":"$(rm -rf /)"}',
    }
    endpoint = {
        "name": "payouts",
        "url": "https://example.com/a?b=c&d='",
        "headers": {"x-token": "env:TOKEN_NAME"},
        "headers_literal": {"x-tenant": "***"},
        "envelope": "standard",
    }
    command = copy_of(entry, endpoint).command
    assert "x-token: REDACTED" in command
    assert "x-tenant: REDACTED" in command
    assert "TOKEN_NAME" not in command
    assert '\'{"it\'"\'"\'s":"$(rm -rf /)"}\'' in command
    assert "'https://example.com/a?b=c&d='\"'\"''" in command


def test_copied_request_drives_no_terminal_and_keeps_its_bytes() -> None:
    body = '{"data":{"note":"\u202e\x9b2J\x7f it\'s"},"key":"k"}'
    entry = {"key": f"hf_{'0' * 32}", "subject_id": 1, "subject": "m", "traceparent": None}
    endpoint = {
        "name": "payouts",
        "url": "https://example.com/",
        "headers": {},
        "headers_literal": {},
        "envelope": "standard",
    }
    command = copy_of({**entry, "body": body}, endpoint).command
    assert all(line.isprintable() for line in command.splitlines())
    script = f"curl() {{ printf '%s' \"${{@: -1}}\"; }}\n{command}"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == body


KEY = "hf_" + "0" * 32
ID = "46dda797-e9af-4cfb-a85d-315b6e0c9d3c"


@pytest.mark.parametrize(
    ("action", "target", "address"),
    [
        ("dead.dismiss", "dead letter 7", "/dead/7"),
        ("quarantine.read", "quarantine 3", "/quarantine/3"),
        ("replay.apply", f"replay {ID}", f"/replays/{ID}"),
        ("entry.read", KEY, f"/entries/{KEY}"),
        ("entry.read", "payouts batch 7", "/batches/show?stream=payouts&batch_id=7"),
        ("endpoint.paused", "payouts", "/endpoints/payouts"),
        ("stream.adopt", "a b", "/batches?stream=a+b"),
        ("endpoint.paused", "../secrets", None),
        ("login", "alice", None),
        ("dead.dismiss", "dead letter 7/../..", None),
    ],
)
def test_target_of_an_action_is_linked(action: str, target: str, address: str | None) -> None:
    assert page_of(action, target) == address


def test_values_of_headers_are_left_out_of_the_trail_at_any_depth() -> None:
    detail = {"before": {"headers": {"x-key": "secret"}}, "after": [{"headers": {"a": "secret"}}]}
    text = detail_text(detail)
    assert "secret" not in text
    assert "x-key" in text
    assert detail_text({}) == ""


def test_bodies_too_long_to_compare_are_shown_in_full() -> None:
    many = "[" + ",".join(["1"] * 1_000) + "]"
    lines = line_diff(many, many)
    assert {line.side for line in lines} == {"then", "now"}
    assert [line.side for line in line_diff(None, "{}")] == ["now"]
    assert line_diff(None, None) == []


def _plan(**counts: Any) -> dict[str, Any]:
    return {
        "outside_window": False,
        "verb": "redeliver",
        "state": "planned",
        "item_count": 1,
        "counts": counts,
        "obstacles": [],
    }


def test_plan_warns_of_what_a_person_must_know() -> None:
    other = {"id": ID, "state": "planned", "actor": "alice", "entries": 2}
    plan = _plan(taken=1, beyond_limit=3, outside_window=4) | {"obstacles": ["it is paused"]}
    warnings = replays.warnings(plan, [other])
    assert len(warnings) == 5
    assert warnings[0] == "It is paused."
    assert "2 entries are in replay 46dda797 too (planned, by alice)" in warnings[1]
    assert "1 entry is left to a running replay" in warnings[2]
    assert "3 entries were omitted" in warnings[3]
    assert "this plan is refused" in warnings[4]
    assert replays.warnings(_plan(), ()) == []


def test_plan_with_forgotten_keys_needs_consent() -> None:
    assert replays.can_apply(_plan())
    assert not replays.can_apply(_plan(outside_window=1))
    assert replays.can_apply({**_plan(outside_window=1), "outside_window": True})
    for other in ({"verb": "reissue"}, {"state": "applying"}, {"item_count": 0}):
        assert not replays.can_apply({**_plan(), **other})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"endpoint_state": "paused"}, "the endpoint is paused"),
        ({"breaker": "open"}, "its breaker is open"),
        ({"held_until": NOON}, "held until 2026-11-02 12:00:00 UTC"),
    ],
)
def test_what_blocks_an_endpoint_is_reported(changes: dict[str, Any], message: str | None) -> None:
    row = {"endpoint_state": "active", "breaker": "closed", "held_until": None, **changes}
    assert hold_reason(row, clock) == message


@pytest.mark.parametrize(
    "texts", [[], ["0"], ["-1"], ["one"], ["1" * 19], ["\u0661"], ["1"] * (CHOSEN_MAX + 1)]
)
def test_choice_that_is_no_numbers_is_refused(texts: list[str]) -> None:
    with pytest.raises(CommandError):
        numbers_of(texts)
    assert numbers_of(["3", "1", "3"]) == [3, 1]


def test_page_takes_body_only_where_a_read_is_recorded() -> None:
    takes = {
        route.path: "body" in [each.name for each in route.dependant.query_params]
        for group in registry.groups()
        for route in verbs.router(group).routes
        if isinstance(route, APIRoute) and "GET" in route.methods
    }
    assert (takes["/dead/{number}"], takes["/database"]) == (True, False)
