"""The overview and the status: how delivery is doing, and what needs a person."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import Field

from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.requests import DIGITS
from holdfast.dispatcher.api.responses import Count, ResponseModel, Seconds, Time
from holdfast.dispatcher.api.routes.endpoints import ListedEndpoint
from holdfast.dispatcher.operators.dispatchers.verbs import LivingDispatcher
from holdfast.dispatcher.operators.overview.store import MINUTES_MAX, Overview
from holdfast.dispatcher.operators.overview.verbs import Need
from holdfast.dispatcher.operators.streams.verbs import ListedStream
from holdfast.sink.contract.states import BreakerState, EndpointState

router = APIRouter(prefix="/overview", tags=["status"])


class Minute(ResponseModel):
    """What happened in one minute."""

    minute: Time = Field(description="Start of the minute.")
    entries: Count = Field(description="Entries written by sinks.")
    attempts: Count
    deliveries: Count
    outcomes: dict[str, int] = Field(description="Attempts by outcome.")


class Sums(ResponseModel):
    """Sums over the series."""

    entries: Count
    attempts: Count
    deliveries: Count
    outcomes: dict[str, int] = Field(description="Attempts by outcome.")


class Percentiles(ResponseModel):
    """Percentiles of a duration; null without samples."""

    p50: float | None
    p95: float | None
    p99: float | None
    of: Count = Field(description="Number of samples.")


class EndpointNow(ResponseModel):
    """Current state of an endpoint."""

    name: str
    state: EndpointState
    state_reason: str | None
    breaker: BreakerState
    breaker_since: Time | None
    breaker_until: Time | None
    breaker_reason: str | None
    breaker_open_seconds: float | None
    held_until: Time | None = Field(
        description="The receiver asked not to be called before this time."
    )
    due_lanes: Count = Field(description="Counted to 10,000 for each priority.")
    oldest_due_age_seconds: Seconds
    leased_lanes: Count
    not_claimed: bool = Field(
        description="Due for two minutes with nothing in flight, although no breaker, hold or rate"
        " limit explains it."
    )


class WrittenBatch(ResponseModel):
    """A batch's ledger row."""

    stream: str
    query_id: UUID
    batch_id: int
    batch_no: int
    written_at: Time
    routed_at: Time | None
    row_count: Count
    entry_count: Count
    duplicate_count: Count
    suppressed_count: Count
    quarantined_count: Count


class OverviewNow(ResponseModel):
    """How delivery is doing."""

    at: Time = Field(description="By the database's clock.")
    since: Time = Field(description="Start of the series, a full minute.")
    complete_since: Time = Field(description="Counts before this time are incomplete.")
    oldest_due_age_seconds: Seconds
    oldest_undelivered_age_seconds: Seconds = Field(
        description="Of all endpoints that are not disabled, in whatever state its lane is."
    )
    series: list[Minute]
    totals: Sums
    duration_ms: Percentiles = Field(description="Of attempts, in milliseconds.")
    latency_seconds: Percentiles = Field(
        description="From an entry's commit to its delivery, in seconds; a sample."
    )
    endpoints: list[EndpointNow]
    batches: list[WrittenBatch] = Field(description="The newest 10 of all streams.")
    dispatchers_alive: Count
    unrouted_batches: Count
    overtaken_rows: Count = Field(
        description="Stored decisions that were not written because a later one was written first,"
        " counted to 100,000; see `/suppressed`."
    )
    needs: list[Need] = Field(description="What needs a person, the most urgent first.")


@router.get("", summary="Show how delivery is doing.")
def show_overview(
    request: Request,
    session: Viewer,
    minutes: Annotated[
        int, Field(ge=1, le=MINUTES_MAX, description="Minutes to look back."), DIGITS
    ] = 60,
) -> OverviewNow:
    """Return rates, latency, endpoints and needs. The cost does not grow with the outbox."""
    with session.open(Overview) as store:
        found = store.overview(minutes, request.app.state.settings.undelivered_minutes)
    return OverviewNow.model_validate(found)


status_router = APIRouter(prefix="/status", tags=["status"])

OldestWaiting = Annotated[
    float | None,
    Field(
        description="Age in seconds of the oldest waiting entry, among the heads of the 2,000 lanes"
        " of each endpoint that are due first and the 2,000 that are due last; null:"
        " none waits."
    ),
]


class Status(ResponseModel):
    """Streams, endpoints, backlog and what needs a person."""

    degraded: bool = Field(description="Something needs a person.")
    read_only: bool = Field(description="The server refuses every write: read-only, or a standby.")
    needs: list[Need] = Field(description="As in `/overview`, the most urgent first.")
    entries: Count = Field(description="Entries written in total.")
    unrouted_batches: Count
    due_lanes: Count = Field(description="Counted to 100,000 for each endpoint.")
    retrying_lanes: Count = Field(description="Counted to 100,000 for each endpoint.")
    leased_lanes: Count
    dead_letters: Count = Field(description="Unresolved ones, counted to 100,000.")
    quarantined_rows: Count = Field(description="Rows quarantined in total.")
    open_quarantined_rows: Count = Field(description="Counted to 100,000.")
    overtaken_rows: Count = Field(
        description="Stored decisions that were not written because a later one was written first,"
        " counted to 100,000; see `/suppressed`."
    )
    diverged_replays: Count
    oldest_waiting_seconds: OldestWaiting
    streams: list[ListedStream]
    endpoints: list[ListedEndpoint]
    dispatchers: list[LivingDispatcher]


@status_router.get("", summary="Show streams, endpoints, backlog and what needs a person.")
def show_status(request: Request, session: Viewer) -> Status:
    """Return what `holdfast status` shows. It sums over all batches; for a cheaper read see
    `/overview`.
    """
    with session.open(Overview) as store:
        found = store.status(request.app.state.settings.undelivered_minutes)
    return Status.model_validate(found)
