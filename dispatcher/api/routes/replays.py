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

from dispatcher.api import bodies
from dispatcher.api.access import Admin, Operator, Session, Viewer
from dispatcher.api.requests import (
    NUMBER_MAX,
    Because,
    Keys,
    Limit,
    Moment,
    Reason,
    RequestBody,
    Text,
)
from dispatcher.api.responses import Count, Json, KeyText, ResponseModel, Seconds, Time
from dispatcher.operators.common.keys import few_keys_of, keys_of
from dispatcher.operators.common.person import lacks_approval
from dispatcher.operators.entries.store import Entries
from dispatcher.operators.replays.actions import applied, planned
from dispatcher.operators.replays.filter import ReplayFilter, ReplayScope
from dispatcher.operators.replays.redeliver import (
    NOT_APPLIED,
    NOTHING_TO_DO,
    plan_of_keys,
    redelivered_before,
    standing_of,
)
from dispatcher.operators.replays.store import ReplayStore
from dispatcher.operators.replays.views import item_row
from sink.contract.exits import CommandError
from sink.contract.states import (
    AccessRole,
    BreakerState,
    EndpointState,
    Outcome,
    ReplayKind,
    ReplayState,
    ReplayVerb,
)

router = APIRouter(prefix="/replays", tags=["replays"])

ReplayId = Annotated[UUID, Path(description="Of a replay.")]


class Replay(ResponseModel):
    """A replay as it was planned, and how it stands."""

    id: UUID
    verb: ReplayVerb
    state: ReplayState
    filter: Json = Field(description="What was asked for.")
    item_count: Count
    item_limit: int | None
    reason: str
    actor: str
    created_at: Time
    applied_at: Time | None
    rate_per_second: int | None
    counts: Json = Field(
        description="What the plan found: entries, kinds, endpoints, no_op_there (delivered with a"
        " signed receipt), outside_window, taken, overlaps, beyond_limit, drain_seconds; repeats,"
        " the business actions that it may repeat, and needs_approval, by a second person."
    )
    plan_sha256: str | None
    outside_window: bool = Field(description="Keys may be sent that the receiver may have lost.")
    person: str = Field(description="Who planned it, whatever token or login they used.")
    approved_by: str | None
    approved_at: Time | None
    cancelled_by: str | None
    cancelled_at: Time | None
    finished_at: Time | None
    obstacles: list[str] = Field(
        description="What keeps it, now, from being sent once it is applied: sentences."
    )


class ListedReplay(ResponseModel):
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


class ReplayPage(ResponseModel):
    """Replays, the newest first."""

    replays: list[ListedReplay]
    next_before: Time | None = Field(
        description="`before` of the next page; null where nothing is left."
    )


class Item(ResponseModel):
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


class ItemPage(ResponseModel):
    """Items, in the order in which they go."""

    items: list[Item]
    next_after: int | None = Field(
        description="`after` of the next page; null where nothing is left."
    )


class Progress(ResponseModel):
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
    with session.open(ReplayStore) as store:
        rows = list(store.list(limit=limit, before=before))
    older = rows[-1]["created_at"] if len(rows) == limit else None
    return ReplayPage.model_validate({"replays": rows, "next_before": older})


@router.get("/{id}", summary="Show a replay.")
def show_replay(session: Viewer, id: ReplayId) -> Replay:  # noqa: A002 - the parameter's name
    """Return a replay as it was planned."""
    with session.open(ReplayStore) as store:
        return Replay.model_validate(store.show(id))


@router.get("/{id}/status", summary="Say how far a replay has come.")
def show_replay_status(session: Viewer, id: ReplayId) -> ReplayStatus:  # noqa: A002 - the parameter's name
    """Return a replay with its progress, and what keeps it at each endpoint."""
    with session.open(ReplayStore) as store:
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
    with session.open(ReplayStore) as store:
        store.show(id)
        found = store.items(id, after=after, limit=limit)
    rows = [bodies.without_answers(item_row(each), "detail") for each in found]
    further = rows[-1]["place"] if len(rows) == limit else None
    return ItemPage.model_validate({"items": rows, "next_after": further})


class ReplayProgress(Replay):
    """A replay, and how far it has come."""

    progress: dict[str, int] = Field(description="Items by what became of them.")
    endpoints: list[Json] = Field(description="The same at each endpoint, and what keeps it.")
    drain_seconds: Seconds | None = Field(description="The least that is left, in seconds.")


ITEMS_ALONE_MAX = 100_000
"""A plan of more items is applied by an administrator."""

PlanId = Annotated[UUID, Path(description="Made by the caller, a random UUID.")]

Batch = Annotated[int, Field(ge=0, le=NUMBER_MAX)]

Rate = Annotated[
    int,
    Field(ge=1, le=1_000_000, description="Entries a second at most, over all dispatchers."),
]

OutsideWindow = Annotated[
    bool,
    Field(description="Send also what the receiver may have forgotten: it may act on it again."),
]


class Wanted(RequestBody):
    """Which entries; all of what is said holds for each. An empty one is refused."""

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
        """Return it as the store takes it."""
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
    """A plan to be made; nothing is sent by it."""

    filter: Wanted
    rate: Rate | None = None
    limit: int | None = Field(
        None, ge=1, le=NUMBER_MAX, description="Only the first so many, the oldest."
    )
    outside_window: OutsideWindow = False
    reason: Reason


@router.put("/{replay_id}", summary="Plan to send entries again, under their old keys.")
def plan_replay(request: Request, session: Operator, replay_id: PlanId, given: NewReplay) -> Replay:
    """Find what would be sent, and write it down. The same request again returns the same plan."""
    with session.open(ReplayStore) as store:
        row = planned(
            store,
            replay_id,
            given.filter.filter(),
            reason=given.reason,
            rate=given.rate,
            outside_window=given.outside_window,
            limit=given.limit,
            alone=request.app.state.settings.reissue_limit,
        )
    return Replay.model_validate(row)


@router.post("/{replay_id}/apply", summary="Let the dispatchers do what was planned.")
def apply_replay(session: Operator, replay_id: PlanId, given: Because) -> ReplayProgress:
    """Begin, unless it is no longer as it was planned (409). Once more changes nothing."""
    with session.open(ReplayStore) as store:
        check_size(session, store.show(replay_id)["item_count"])
        return ReplayProgress.model_validate(applied(store, replay_id, given.reason))


@router.post("/{replay_id}/approve", summary="Approve a replay that another person planned.")
def approve_replay(session: Admin, replay_id: PlanId, given: Because) -> Replay:
    """Agree as a second person to one that sends keys which receivers may have forgotten."""
    with session.open(ReplayStore) as store:
        store.show(replay_id)
        store.approve(replay_id, given.reason)
        return Replay.model_validate(store.show(replay_id))


@router.post("/{replay_id}/cancel", summary="End a replay: nothing more of it is sent.")
def cancel_replay(session: Operator, replay_id: PlanId, given: Because) -> ReplayProgress:
    """What is in flight ends and is booked."""
    with session.open(ReplayStore) as store:
        return ReplayProgress.model_validate(store.cancel(replay_id, given.reason))


def check_size(session: Session, items: int) -> None:
    """Raise 403 where a plan is too large for one who is no administrator."""
    if items > ITEMS_ALONE_MAX and not session.may(AccessRole.ADMIN):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"a plan of {items:,} items is applied by an administrator: more than"
            f" {ITEMS_ALONE_MAX:,}. Nothing was sent; ask one, or plan less.",
            {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
        )


redelivery_router = APIRouter(prefix="/redeliveries", tags=["replays"])


class NewRedelivery(RequestBody):
    """Entries to be sent again now."""

    keys: Keys
    endpoint: Text | None = Field(None, description="Only there; where each stands, if none.")
    rate: Rate | None = None
    outside_window: OutsideWindow = False
    reason: Reason


class RedeliveredItem(ResponseModel):
    """An entry at an endpoint, and what becomes of it."""

    key: str
    subject: str
    endpoint: str
    kind: ReplayKind
    what_happens: str


class LeftAlone(ResponseModel):
    """An entry at an endpoint that nothing is done about."""

    key: str
    endpoint: str | None
    why: str


class RedeliveryAnswer(ResponseModel):
    """The replay that was made of the keys; null where there is nothing to do."""

    replay: ReplayProgress | None
    items: list[RedeliveredItem]
    nothing: list[LeftAlone]
    needs_approval: bool = Field(
        description="Nothing is sent: an administrator, not its planner, has to approve the replay,"
        " and then somebody applies it."
    )


@redelivery_router.put("/{replay_id}", summary="Send entries again, under their old keys.")
def redeliver(
    request: Request,
    session: Operator,
    replay_id: Annotated[UUID, Path(description="Of the replay; made by the caller, random.")],
    given: NewRedelivery,
) -> RedeliveryAnswer:
    """Plan and apply these keys. The same request again changes nothing."""
    wanted = few_keys_of(given.keys)
    with session.open(Entries) as entries:
        standing = standing_of(entries, wanted)
    with session.open(ReplayStore) as store:
        plan = plan_of_keys(
            store,
            replay_id,
            standing,
            endpoint=given.endpoint,
            reason=given.reason,
            rate=given.rate,
            outside_window=given.outside_window,
            alone=request.app.state.settings.reissue_limit,
        )
        waits = lacks_approval(plan.row)
        if not plan.items:
            if not redelivered_before(plan):
                store.cancel(replay_id, NOTHING_TO_DO)
            shown = None
        elif waits:
            shown = store.status(replay_id)
        else:
            try:
                shown = applied(store, replay_id)
            except CommandError:
                if not redelivered_before(plan):
                    store.cancel(replay_id, NOT_APPLIED)
                raise
    return RedeliveryAnswer.model_validate(
        {
            "replay": shown,
            "items": plan.items,
            "nothing": plan.nothing,
            "needs_approval": waits and shown is not None,
        }
    )
