"""Overview: what is wrong, and how delivery is doing."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, floor, log10
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.frame.guard import Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.console.rendering.filters import counted, lasting, number
from holdfast.dispatcher.api.requests import DIGITS, no_others
from holdfast.dispatcher.operators.dispatchers.verbs import Dispatchers
from holdfast.dispatcher.operators.overview.store import MINUTES_MAX, Overview
from holdfast.dispatcher.operators.triage.store import Triage
from holdfast.dispatcher.operators.triage.verbs import without_amounts
from holdfast.sink.contract.states import AccessRole, Outcome

WIDTH = 460
HEIGHT = 150
LEFT = 38
RIGHT = 6
TOP = 8
BOTTOM = 20
LINES_MAX = 4
"""Maximum number of intervals of the scale."""

BAR_HEIGHT = 22
BAR_LEFT = 34
BAR_RIGHT = 74


class Series(NamedTuple):
    """A data series: a name, a tone of `filters.TONES`, a value for each minute."""

    name: str
    tone: str
    values: Sequence[float]


class Rect(NamedTuple):
    """A bar."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    text: str


class Line(NamedTuple):
    """A line, as the `d` of an SVG path."""

    d: str
    tone: str


class Mark(NamedTuple):
    """A label of a scale at the coordinate `at`; `moment` if it is a time."""

    at: float
    text: str
    moment: datetime | None = None


class Chart(NamedTuple):
    """A chart, ready to be drawn by a template."""

    title: str
    width: int
    height: int
    left: int
    right: int
    bottom: int
    bars: list[Rect]
    lines: list[Line]
    scale: list[Mark]
    times: list[Mark]
    legend: list[Series]
    """The series that are visible: a line is visible at 0, a bar is not."""
    text: str
    """Text alternative (aria-label)."""


def per_minute(
    title: str, minutes: Sequence[datetime], series: Sequence[Series], *, stacked: bool
) -> Chart:
    """Return a chart of values by minute: stacked bars, or a line for each series."""
    tops = [
        (sum if stacked else max)([each.values[place] for each in series])
        for place in range(len(minutes))
    ]
    step, top = _scale(max(tops, default=0))
    height, slot = HEIGHT - TOP - BOTTOM, (WIDTH - LEFT - RIGHT) / max(len(minutes), 1)
    bars: list[Rect] = []
    if stacked:
        for place, minute in enumerate(minutes):
            bars += _stack(series, place, minute, slot, height / top)
    lines = [] if stacked else [Line(_path(each, slot, height, top), each.tone) for each in series]
    scale = [
        Mark(HEIGHT - BOTTOM - height * (value / top), number(value))
        for value in (step * each for each in range(round(top / step) + 1))
    ]
    sums = ", ".join(f"{number(sum(each.values))} {each.name}" for each in series)
    return Chart(
        title,
        WIDTH,
        HEIGHT,
        LEFT,
        WIDTH - RIGHT,
        HEIGHT - BOTTOM,
        bars,
        lines,
        scale,
        _times(minutes, slot),
        [each for each in series if any(each.values) or not stacked],
        f"{title} over {counted(len(minutes), 'minute')}: {sums}",
    )


def percentiles(title: str, values: dict[str, float | None], *, unit: float) -> Chart:
    """Return a chart of percentiles; `unit` is the unit of the values in seconds."""
    seconds = {name: value * unit for name, value in values.items() if value is not None}
    most = max(seconds.values(), default=0.0) or 1.0
    room = WIDTH - BAR_LEFT - BAR_RIGHT
    bars, scale = [], []
    for place, (name, value) in enumerate(seconds.items()):
        y = 6 + place * BAR_HEIGHT
        width = max(2.0, room * value / most)
        bars.append(Rect(BAR_LEFT, y, round(width, 1), 13, "wait", f"{name}: {lasting(value)}"))
        scale.append(Mark(y + 11, name))
        scale.append(Mark(round(BAR_LEFT + width + 6, 1), lasting(value)))
    text = ", ".join(f"{name} {lasting(value)}" for name, value in seconds.items()) or "none"
    height = 10 + BAR_HEIGHT * len(seconds)
    return Chart(title, WIDTH, height, BAR_LEFT, WIDTH, height, bars, [], scale, [], [], text)


def _stack(
    series: Sequence[Series], place: int, minute: datetime, slot: float, unit: float
) -> list[Rect]:
    bars, y = [], float(HEIGHT - BOTTOM)
    for each in series:
        value = each.values[place]
        if not value:
            continue
        high = max(value * unit, 0.7)
        y -= high
        text = f"{minute.astimezone(UTC):%H:%M} UTC: {number(value)} {each.name}"
        bars.append(
            Rect(
                round(LEFT + place * slot, 2),
                round(y, 2),
                round(max(slot - 0.8, 0.8), 2),
                round(high, 2),
                each.tone,
                text,
            )
        )
    return bars


def _path(series: Series, slot: float, height: float, top: float) -> str:
    points = [
        f"{LEFT + (place + 0.5) * slot:.1f} {HEIGHT - BOTTOM - height * value / top:.1f}"
        for place, value in enumerate(series.values)
    ]
    return f"M{' L'.join(points)}" if points else ""


def _scale(most: float) -> tuple[float, float]:
    """Return a round step and the multiple of it that reaches `most`.

    >>> _scale(0), _scale(7), _scale(130)
    ((1, 1), (2, 8), (50, 150))
    """
    if most <= 1:
        return 1, 1
    size = 10 ** floor(log10(most / LINES_MAX)) if most > LINES_MAX else 1
    step = next(each * size for each in (1, 2, 5, 10) if ceil(most / (each * size)) <= LINES_MAX)
    return step, step * ceil(most / step)


def _times(minutes: Sequence[datetime], slot: float) -> list[Mark]:
    every = next(each for each in (1, 5, 10, 15, 30, 60) if len(minutes) / each <= 7 or each == 60)
    return [
        Mark(round(LEFT + place * slot, 1), f"{minute.astimezone(UTC):%H:%M}", minute)
        for place, minute in enumerate(minutes)
        if minute.astimezone(UTC).minute % every == 0 and slot * place < WIDTH - LEFT - 30
    ]


router = APIRouter(dependencies=[Depends(no_others)])

MINUTES = (15, 60, 180)
"""Choices of the time range, in minutes."""

DISPATCHERS_SHOWN = 20
MILLISECOND = 0.001

TONES = {
    Outcome.DELIVERED: "good",
    Outcome.THROTTLED: "wait",
    Outcome.UNKNOWN: "warn",
}

PLACES = {
    "cannot_write": "/database",
    "no_dispatcher": "/dispatchers",
    "job_stopped": "/batches",
    "not_routed": "/database",
    "not_claimed": "/endpoints",
    "clock_behind": "/database",
    "schema": "/database",
    "partitions": "/database",
    "undelivered": "/subjects?held=any",
    "subjects_on_hold": "/subjects?held=on_hold",
    "dead_letters": "/dead",
    "silenced_subjects": "/subjects?silenced=yes",
    "watermark_ahead": "/batches",
    "stale_answers": "/endpoints",
    "addresses_refused": "/endpoints",
    "credentials_refused": "/endpoints",
    "disabled_endpoints": "/endpoints",
    "breakers_open": "/endpoints",
    "diverged_replays": "/batches",
    "quarantine": "/quarantine",
    "replays_waiting": "/replays",
    "proposals_waiting": "/audit",
    "old_snapshot": "/database",
}
"""The page for each kind of finding."""


@router.get("/")
def overview(
    request: Request,
    person: Person,
    minutes: Annotated[int, Query(ge=1, le=MINUTES_MAX), DIGITS] = 60,
) -> Response:
    """Show the overview."""
    with person.session.open(Overview) as store:
        found = store.overview(minutes, request.app.state.settings.undelivered_minutes)
    with person.session.open(Triage) as triage:
        report = triage.report(request.app.state.settings.undelivered_minutes)
    if not person.may(AccessRole.OPERATOR):
        report = without_amounts(report)
    with person.session.open(Dispatchers) as known:
        instances = known.instances()
    return page(
        request,
        person,
        "system/overview.html",
        minutes=minutes,
        choices=MINUTES,
        found=found,
        findings=[{**each, "place": PLACES.get(each["kind"], "/")} for each in report["findings"]],
        rates=rates(found["series"]),
        durations=percentiles("Attempt duration", _shares(found["duration_ms"]), unit=MILLISECOND),
        latency=percentiles("Commit to delivery", _shares(found["latency_seconds"]), unit=1.0),
        dispatchers=instances[:DISPATCHERS_SHOWN],
        failed=sum(
            n for outcome, n in found["totals"]["outcomes"].items() if outcome != "delivered"
        ),
    )


def rates(series: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return the charts of a series of minutes: attempts by outcome, entries written and
    delivered.
    """
    minutes = [each["minute"] for each in series]
    tried = [
        Series(name, tone, [sum(each["outcomes"].get(of, 0) for of in outcomes) for each in series])
        for name, tone, outcomes in _groups()
    ]
    flow = [
        Series("written", "wait", [each["entries"] for each in series]),
        Series("delivered", "good", [each["deliveries"] for each in series]),
    ]
    return [
        per_minute("Attempts per minute", minutes, tried, stacked=True),
        per_minute("Entries per minute", minutes, flow, stacked=False),
    ]


def _groups() -> list[tuple[str, str, list[str]]]:
    known = [(each.value, tone, [each.value]) for each, tone in TONES.items()]
    return [*known, ("failed", "bad", [each.value for each in Outcome if each not in TONES])]


def _shares(found: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: found[name] for name in ("p50", "p95", "p99")}
