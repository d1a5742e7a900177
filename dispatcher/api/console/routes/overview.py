"""Overview: how delivery is doing, and what needs a person."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.frame.guard import Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.console.rendering.charts import Chart, Series, per_minute, percentiles
from holdfast.dispatcher.api.requests import DIGITS, no_others
from holdfast.dispatcher.operators.dispatchers.store import Dispatchers
from holdfast.dispatcher.operators.overview.store import MINUTES_MAX, Overview
from holdfast.sink.contract.states import Outcome

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
    "not_routed": "/database",
    "not_claimed": "/endpoints",
    "clock_behind": "/database",
    "schema": "/database",
    "partitions": "/database",
    "undelivered": "/subjects?held=any",
    "stopped_lanes": "/subjects?held=stopped",
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
"""The page for each kind of need."""


@router.get("/")
def overview(
    request: Request,
    person: Person,
    minutes: Annotated[int, Query(ge=1, le=MINUTES_MAX), DIGITS] = 60,
) -> Response:
    """Show the overview."""
    with person.session.open(Overview) as store:
        found = store.overview(minutes, request.app.state.settings.undelivered_minutes)
    with person.session.open(Dispatchers) as known:
        instances = known.instances()
    return page(
        request,
        person,
        "system/overview.html",
        minutes=minutes,
        choices=MINUTES,
        found=found,
        needs=[{**each, "place": PLACES.get(each["kind"], "/")} for each in found["needs"]],
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
