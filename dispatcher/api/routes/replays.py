"""Replays, and reissues: what was planned, what each would do, and how far it has come."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import Field

from dispatcher.api import bodies
from dispatcher.api.access import Viewer
from dispatcher.api.paging import NUMBER_MAX, Limit, Moment
from dispatcher.api.replay_shapes import Replay
from dispatcher.api.shapes import Count, Json, KeyText, Shown, Time
from dispatcher.operators.replays.store import Replays
from dispatcher.operators.replays.views import item_row
from sink.contract.states import (
    BreakerState,
    EndpointState,
    Outcome,
    ReplayKind,
    ReplayState,
    ReplayVerb,
)

router = APIRouter(prefix="/replays", tags=["replays"])

ReplayId = Annotated[UUID, Path(description="Of a replay.")]


class ListedReplay(Shown):
    """A replay."""

    id: UUID
    verb: ReplayVerb
    state: ReplayState
    filter: Json = Field(description="What its entries have in common.")
    item_count: Count
    reason: str
    actor: str = Field(description="Who planned it.")
    created_at: Time
    applied_at: Time | None
    rate_per_second: int | None
    cancelled_at: Time | None
    finished_at: Time | None


class ReplayPage(Shown):
    """Replays, the newest first."""

    replays: list[ListedReplay]
    next_before: Time | None = Field(
        description="`before` of the next page; null where nothing is left."
    )


class Item(Shown):
    """An entry of a replay, at an endpoint."""

    place: int
    endpoint: str
    subject: str
    sequence: int
    created_at: Time
    key: KeyText
    new_key: KeyText | None = Field(description="Of a reissue.")
    kind: ReplayKind
    attempt: int
    due_at: Time | None
    lease_until: Time | None
    outcome: Outcome | None
    settled_at: Time | None
    detail: str | None


class ItemPage(Shown):
    """Items, in the order in which they go."""

    items: list[Item]
    next_after: int | None = Field(
        description="`after` of the next page; null where nothing is left."
    )


class Progress(Shown):
    """How far the items of an endpoint have come."""

    endpoint: str
    endpoint_state: EndpointState
    rate_per_second: int | None
    breaker: BreakerState
    held_until: Time | None
    items: Count
    settled: Count
    released: Count
    hastened: Count
    sent: Count
    delivered: Count
    failed: Count
    needless: Count
    in_flight: Count
    waiting: Count
    retrying: Count


class ReplayStatus(Replay):
    """A replay, and how far it has come."""

    progress: dict[str, int] = Field(description="Over all endpoints; empty without items.")
    endpoints: list[Progress]
    drain_seconds: float | None = Field(
        description="The least that is left, in seconds; null where nothing has a rate."
    )


@router.get("", summary="List replays.")
def list_replays(
    session: Viewer,
    limit: Limit = 50,
    before: Annotated[Moment | None, Query(description="Only those made before.")] = None,
) -> ReplayPage:
    """Return replays and reissues, the newest first."""
    with session.open(Replays) as store:
        rows = list(store.list(limit=limit, before=before))
    older = rows[-1]["created_at"] if len(rows) == limit else None
    return ReplayPage.model_validate({"replays": rows, "next_before": older})


@router.get("/{id}", summary="Show a replay.")
def show_replay(session: Viewer, id: ReplayId) -> Replay:  # noqa: A002 - the parameter's name
    """Return a replay as it was planned."""
    with session.open(Replays) as store:
        return Replay.model_validate(store.show(id))


@router.get("/{id}/status", summary="Say how far a replay has come.")
def show_replay_status(session: Viewer, id: ReplayId) -> ReplayStatus:  # noqa: A002 - the parameter's name
    """Return a replay with its progress, and what keeps it at each endpoint."""
    with session.open(Replays) as store:
        return ReplayStatus.model_validate(store.status(id))


@router.get("/{id}/items", summary="List the items of a replay.")
def list_replay_items(
    session: Viewer,
    id: ReplayId,  # noqa: A002 - the parameter's name
    limit: Limit = 50,
    after: Annotated[
        int, Query(ge=0, le=NUMBER_MAX, description="`next_after` of the page before this one.")
    ] = 0,
) -> ItemPage:
    """Return the items of a replay, in the order in which they go."""
    with session.open(Replays) as store:
        store.show(id)
        found = store.items(id, after=after, limit=limit)
    rows = [bodies.without_answers(item_row(each), "detail") for each in found]
    further = rows[-1]["place"] if len(rows) == limit else None
    return ItemPage.model_validate({"items": rows, "next_after": further})
