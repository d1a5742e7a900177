"""Replays and redeliveries: planned, applied, followed, cancelled.

The caller chooses the id of a plan, so a repeated request changes nothing twice: the plan is
again returned, and an applied plan stays applied.
"""

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Admin, Operator, Session, Viewer
from holdfast.dispatcher.api.requests import (
    NUMBER_MAX,
    Because,
    Keys,
    Limit,
    Moment,
    Reason,
    RequestBody,
    Text,
)
from holdfast.dispatcher.api.responses import Count, Json, KeyText, ResponseModel, Seconds, Time
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.replays.actions import (
    applied,
    apply_keys,
    plan_of_keys,
    planned,
    standing_of,
)
from holdfast.dispatcher.operators.replays.rules import (
    ReplayFilter,
    ReplayScope,
    few_keys_of,
    keys_of,
)
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.views import item_row
from holdfast.sink.contract.states import (
    AccessRole,
    BreakerState,
    EndpointState,
    Outcome,
    ReplayKind,
    ReplayState,
    ReplayVerb,
)

router = APIRouter(prefix="/replays", tags=["replays"])

ReplayId = Annotated[UUID, Path(description="The replay's id.")]


class Replay(ResponseModel):
    """A replay: its plan and its state."""

    id: UUID
    verb: ReplayVerb
    state: ReplayState
    filter: Json = Field(description="The filter of its entries.")
    item_count: Count
    item_limit: int | None
    reason: str
    actor: str
    created_at: Time
    applied_at: Time | None
    rate_per_second: int | None
    counts: Json = Field(
        description="What the plan found: entries, kinds, endpoints, no_op_there (delivered with a"
        " signed receipt), outside_window, taken, overlaps, beyond_limit, drain_seconds;"
        " repeats (business actions that it may repeat), overtakes (of a reissue, by key: the"
        " subject's newest decision, if it occurred later) and needs_approval (by a second"
        " person)."
    )
    plan_sha256: str | None
    outside_window: bool = Field(
        description="Keys that the receiver may have forgotten are sent, too."
    )
    person: str = Field(
        description="The person who planned it, independent of the token or login used."
    )
    approved_by: str | None
    approved_at: Time | None
    cancelled_by: str | None
    cancelled_at: Time | None
    finished_at: Time | None
    obstacles: list[str] = Field(
        description="What would currently keep it from being sent, as sentences."
    )


class ListedReplay(ResponseModel):
    """A replay."""

    id: UUID
    verb: ReplayVerb
    state: ReplayState
    filter: Json = Field(description="The filter of its entries.")
    item_count: Count
    reason: str
    actor: str = Field(description="The actor who planned it.")
    created_at: Time
    applied_at: Time | None
    rate_per_second: int | None
    cancelled_at: Time | None
    finished_at: Time | None


class ReplayPage(ResponseModel):
    """Replays, the newest first."""

    replays: list[ListedReplay]
    next_before: Time | None = Field(
        description="`before` of the next page; null if this is the last."
    )


class Item(ResponseModel):
    """An entry of a replay at an endpoint."""

    place: int
    endpoint: str
    subject: str
    sequence: int
    written_at: Time
    key: KeyText
    new_key: KeyText | None = Field(description="The new key, for a reissue.")
    kind: ReplayKind
    attempt: int
    due_at: Time | None
    lease_until: Time | None
    outcome: Outcome | None
    settled_at: Time | None
    detail: str | None


class ItemPage(ResponseModel):
    """Items, in sending order."""

    items: list[Item]
    next_after: int | None = Field(
        description="`after` of the next page; null if this is the last."
    )


class Progress(ResponseModel):
    """Progress of the items of an endpoint."""

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
    """A replay and its progress."""

    progress: dict[str, int] = Field(
        description="Number of items by result over all endpoints; empty without items."
    )
    endpoints: list[Progress]
    drain_seconds: float | None = Field(
        description="Minimum remaining time, in seconds; null without a rate limit."
    )


@router.get("", summary="List replays.")
def list_replays(
    session: Viewer,
    limit: Limit = 50,
    before: Annotated[
        Moment | None, Query(description="Only replays created before this time.")
    ] = None,
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


@router.get("/{id}/status", summary="Show the progress of a replay.")
def show_replay_status(session: Viewer, id: ReplayId) -> ReplayStatus:  # noqa: A002 - the parameter's name
    """Return a replay with its progress, and what holds it up at each endpoint."""
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
    """Return the items of a replay, in sending order."""
    with session.open(Replays) as store:
        store.show(id)
        found = store.items(id, after=after, limit=limit)
    rows = [bodies.without_answers(item_row(each), "detail") for each in found]
    further = rows[-1]["place"] if len(rows) == limit else None
    return ItemPage.model_validate({"items": rows, "next_after": further})


class ReplayProgress(Replay):
    """A replay and its progress."""

    progress: dict[str, int] = Field(description="Number of items by result.")
    endpoints: list[Json] = Field(description="Progress at each endpoint, and what holds it up.")
    drain_seconds: Seconds | None = Field(description="Minimum remaining time, in seconds.")


ITEMS_ALONE_MAX = 100_000
"""A plan with more items must be applied by an administrator."""

PlanId = Annotated[UUID, Path(description="A random UUID chosen by the caller.")]

Batch = Annotated[int, Field(ge=0, le=NUMBER_MAX)]

Rate = Annotated[
    int,
    Field(
        ge=1,
        le=1_000_000,
        description="Maximum number of entries per second, over all dispatchers.",
    ),
]

OutsideWindow = Annotated[
    bool,
    Field(
        description="Also send keys older than the receiver's key window; the receiver may act"
        " on them again."
    ),
]


class Wanted(RequestBody):
    """A filter of entries; all given conditions apply. An empty filter is refused."""

    endpoint: Text | None = None
    subject: Text | None = None
    stream: Text | None = None
    first_batch: Batch | None = None
    last_batch: Batch | None = None
    since: Annotated[Moment, Field(strict=False)] | None = None
    until: Annotated[Moment, Field(strict=False)] | None = None
    states: list[Annotated[ReplayScope, Field(strict=False)]] = Field([], max_length=3)
    types: list[Text] = Field([], max_length=100)
    keys: Keys | None = None

    def filter(self) -> ReplayFilter:
        """Return the filter that the store takes."""
        return ReplayFilter(
            endpoint=self.endpoint,
            subject=self.subject,
            stream=self.stream,
            first_batch=self.first_batch,
            last_batch=self.last_batch,
            since=self.since,
            until=self.until,
            states=tuple(dict.fromkeys(self.states)),
            types=tuple(dict.fromkeys(self.types)),
            keys=keys_of(self.keys or ()),
        )


class NewReplay(RequestBody):
    """A plan to make. Nothing is sent by it."""

    filter: Wanted
    rate: Rate | None = None
    limit: int | None = Field(
        None, ge=1, le=NUMBER_MAX, description="Maximum number of entries, the oldest first."
    )
    outside_window: OutsideWindow = False
    reason: Reason


@router.put("/{replay_id}", summary="Plan to send entries again under their original keys.")
def plan_replay(request: Request, session: Operator, replay_id: PlanId, given: NewReplay) -> Replay:
    """Find what would be sent, and store it as a plan. Idempotent: the same request returns the
    same plan.
    """
    with session.open(Replays) as store:
        row = planned(
            store,
            replay_id,
            given.filter.filter(),
            reason=given.reason,
            rate=given.rate,
            outside_window=given.outside_window,
            limit=given.limit,
            alone_max=request.app.state.settings.reissue_limit,
        )
    return Replay.model_validate(row)


@router.post("/{replay_id}/apply", summary="Apply a plan: the dispatchers send it.")
def apply_replay(session: Operator, replay_id: PlanId, given: Because) -> ReplayProgress:
    """Start it; 409 if the plan is outdated. Idempotent."""
    with session.open(Replays) as store:
        check_size(session, store.show(replay_id)["item_count"])
        return ReplayProgress.model_validate(applied(store, replay_id, given.reason))


@router.post("/{replay_id}/approve", summary="Approve a replay that another person planned.")
def approve_replay(session: Admin, replay_id: PlanId, given: Because) -> Replay:
    """Approve, as a second person, a plan that sends keys which receivers may have forgotten."""
    with session.open(Replays) as store:
        store.show(replay_id)
        store.approve(replay_id, given.reason)
        return Replay.model_validate(store.show(replay_id))


@router.post("/{replay_id}/cancel", summary="Cancel a replay: nothing more of it is sent.")
def cancel_replay(session: Operator, replay_id: PlanId, given: Because) -> ReplayProgress:
    """Requests in flight finish and are recorded."""
    with session.open(Replays) as store:
        return ReplayProgress.model_validate(store.cancel(replay_id, given.reason))


def check_size(session: Session, items: int) -> None:
    """Raise 403 if a plan is too large to be applied by anybody but an administrator."""
    if items > ITEMS_ALONE_MAX and not session.may(AccessRole.ADMIN):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"a plan of {items:,} items, more than {ITEMS_ALONE_MAX:,}, must be applied by an"
            " administrator. Nothing was sent; ask one, or make a smaller plan.",
            {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
        )


redelivery_router = APIRouter(prefix="/redeliveries", tags=["replays"])


class NewRedelivery(RequestBody):
    """Entries to send again now."""

    keys: Keys
    endpoint: Text | None = Field(
        None,
        description="Only this endpoint. Default: every endpoint at which the entry can be sent"
        " again.",
    )
    rate: Rate | None = None
    outside_window: OutsideWindow = False
    reason: Reason


class RedeliveredItem(ResponseModel):
    """An entry at an endpoint, and what will happen to it."""

    key: str
    subject: str
    endpoint: str
    kind: ReplayKind
    what_happens: str


class LeftAlone(ResponseModel):
    """An entry at an endpoint for which nothing is to be done."""

    key: str
    endpoint: str | None
    why: str


class RedeliveryAnswer(ResponseModel):
    """The replay of these keys; null if there is nothing to do."""

    replay: ReplayProgress | None
    items: list[RedeliveredItem]
    nothing: list[LeftAlone]
    needs_approval: bool = Field(
        description="Nothing is sent yet: another person, an administrator, has to approve the"
        " replay before it is applied."
    )


@redelivery_router.put("/{replay_id}", summary="Send entries again under their original keys.")
def redeliver(
    request: Request,
    session: Operator,
    replay_id: Annotated[
        UUID, Path(description="The replay's id: a random UUID chosen by the caller.")
    ],
    given: NewRedelivery,
) -> RedeliveryAnswer:
    """Plan and apply a replay of these keys. Idempotent."""
    wanted = few_keys_of(given.keys)
    with session.open(Entries) as entries:
        standing = standing_of(entries, wanted)
    with session.open(Replays) as store:
        plan = plan_of_keys(
            store,
            replay_id,
            standing,
            endpoint=given.endpoint,
            reason=given.reason,
            rate=given.rate,
            outside_window=given.outside_window,
            alone_max=request.app.state.settings.reissue_limit,
        )
        waits = lacks_approval(plan.row)
        if not plan.items:
            shown = None
        else:
            shown = store.status(replay_id) if waits else apply_keys(store, plan)
    return RedeliveryAnswer.model_validate(
        {
            "replay": shown,
            "items": plan.items,
            "nothing": plan.nothing,
            "needs_approval": waits and shown is not None,
        }
    )
