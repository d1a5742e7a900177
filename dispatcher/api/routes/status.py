"""How everything stands: the counts of `holdfast status`."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.routes.endpoints import ListedEndpoint
from dispatcher.api.routes.overview import Need
from dispatcher.api.routes.streams import ListedStream
from dispatcher.api.shapes import Count, Shown, Time
from dispatcher.operators.overview.store import Overview

router = APIRouter(prefix="/status", tags=["status"])

OldestWaiting = Annotated[
    float | None,
    Field(
        description="For how many seconds the oldest entry that waits has, among the heads of 2,000"
        " lanes of each endpoint that are due first and 2,000 that are due last; null: none waits."
    ),
]


class LivingDispatcher(Shown):
    """A dispatcher that was heard of within the last minute."""

    id: UUID
    host: str
    pid: int
    version: str
    started_at: Time
    heartbeat_at: Time
    in_flight: Count = Field(description="Requests under way at that beat.")
    draining: bool


class Status(Shown):
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


@router.get("", summary="Count what is on its way and what needs a person.")
def show_status(session: Viewer) -> Status:
    """Return what `holdfast status` shows. It adds up all batches; see `/overview`."""
    with session.open(Overview) as store:
        return Status.model_validate(store.status())
