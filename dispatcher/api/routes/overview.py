"""The overview and the status: how delivery is doing, and what needs a person."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.responses import Count, ResponseModel, Seconds, Time
from dispatcher.api.routes.endpoints import ListedEndpoint
from dispatcher.api.routes.streams import ListedStream
from dispatcher.operators.overview.store import MINUTES_MAX, Overview
from dispatcher.operators.overview.views import standing
from dispatcher.operators.streams.operator import OperatorStore
from sink.contract.states import BreakerState, EndpointState

router = APIRouter(prefix="/overview", tags=["status"])


class Minute(ResponseModel):
    """What happened in one minute."""

    minute: Time = Field(description="Its beginning.")
    entries: Count = Field(description="Written by sinks.")
    attempts: Count
    deliveries: Count
    outcomes: dict[str, int] = Field(description="Attempts by outcome.")


class Sums(ResponseModel):
    """The series added up."""

    entries: Count
    attempts: Count
    deliveries: Count
    outcomes: dict[str, int] = Field(description="Attempts by outcome.")


class Percentiles(ResponseModel):
    """How long something takes; null where there was nothing."""

    p50: float | None
    p95: float | None
    p99: float | None
    of: Count = Field(description="Of how many.")


class EndpointNow(ResponseModel):
    """How an endpoint is doing."""

    name: str
    state: EndpointState
    state_reason: str | None
    breaker: BreakerState
    breaker_since: Time | None
    breaker_until: Time | None
    breaker_reason: str | None
    breaker_open_seconds: float | None
    held_until: Time | None = Field(description="The receiver asked not to be called before.")
    due_lanes: Count = Field(description="Of each priority 10,000 are counted at most.")
    oldest_due_age_seconds: Seconds
    leased_lanes: Count
    not_claimed: bool = Field(
        description="Due for two minutes and none of it under way, though neither a breaker nor a"
        " hold nor a rate says why."
    )


class WrittenBatch(ResponseModel):
    """A batch as the ledger has it."""

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


class Need(ResponseModel):
    """Something that does not go away by itself."""

    kind: str
    count: Count = Field(description="100,000 at most.")
    sentence: str
    command: str = Field(description="To begin with.")


class OverviewNow(ResponseModel):
    """How delivery is doing."""

    at: Time = Field(description="By the database's clock.")
    since: Time = Field(description="The full minute at which the series begins.")
    complete_since: Time = Field(description="What was before is not all counted.")
    oldest_due_age_seconds: Seconds
    series: list[Minute]
    totals: Sums
    duration_ms: Percentiles = Field(description="Of attempts, in milliseconds.")
    latency_seconds: Percentiles = Field(
        description="From a decision's commit to its delivery, in seconds; a sample."
    )
    endpoints: list[EndpointNow]
    batches: list[WrittenBatch] = Field(description="The newest 10 of all streams.")
    dispatchers_alive: Count
    unrouted_batches: Count
    overtaken_rows: Count = Field(
        description="Decisions not written because a later one was; see `/suppressed`. Those that"
        " are stored, counted to 100,000."
    )
    needs: list[Need] = Field(description="What needs a person, the most urgent first.")


@router.get("", summary="Say how delivery is doing.")
def show_overview(
    session: Viewer,
    minutes: Annotated[int, Field(ge=1, le=MINUTES_MAX, description="So many minutes back.")] = 60,
) -> OverviewNow:
    """Return rates, latency, endpoints and needs, at a cost that does not grow with the outbox."""
    with session.open(Overview) as store:
        return OverviewNow.model_validate(store.overview(minutes))


status_router = APIRouter(prefix="/status", tags=["status"])

OldestWaiting = Annotated[
    float | None,
    Field(
        description="For how many seconds the oldest entry that waits has, among the heads of 2,000"
        " lanes of each endpoint that are due first and 2,000 that are due last; null: none waits."
    ),
]


class LivingDispatcher(ResponseModel):
    """A dispatcher that was heard of within the last minute."""

    id: UUID
    host: str
    pid: int
    version: str
    started_at: Time
    heartbeat_at: Time
    in_flight: Count = Field(description="Requests under way at that beat.")
    draining: bool


class Status(ResponseModel):
    """What is on its way, what is late, what needs a person."""

    degraded: bool = Field(description="Something needs a person.")
    needs: list[Need] = Field(description="As in `/overview`: the most urgent first.")
    entries: Count = Field(description="Ever written.")
    unrouted_batches: Count
    due_lanes: Count = Field(description="Of each endpoint counted to 100,000.")
    retrying_lanes: Count = Field(description="Of each endpoint counted to 100,000.")
    leased_lanes: Count
    dead_letters: Count = Field(description="That nobody has resolved; counted to 100,000.")
    quarantined_rows: Count = Field(description="Ever set aside.")
    open_quarantined_rows: Count = Field(description="Counted to 100,000.")
    overtaken_rows: Count = Field(
        description="Decisions not written because a later one was; see `/suppressed`. Those that"
        " are stored, counted to 100,000."
    )
    diverged_replays: Count
    oldest_waiting_seconds: OldestWaiting
    streams: list[ListedStream]
    endpoints: list[ListedEndpoint]
    dispatchers: list[LivingDispatcher]


@status_router.get("", summary="Count what is on its way and what needs a person.")
def show_status(session: Viewer) -> Status:
    """Return what `holdfast status` shows. It adds up all batches; see `/overview`."""
    with session.open(OperatorStore) as store:
        return Status.model_validate(standing(store))
